package claim

import (
	"strings"
	"testing"
	"time"
)

func TestConfigThatCannotBeNamesTheField(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]Config{
		"binary":      {},
		"subjects":    {Binary: "berth", Subjects: []string{"berth", "etcd"}},
		"connections": {Binary: "berth", Connections: -1},
		"workers":     {Binary: "berth", Workers: 10_001},
		"slots":       {Binary: "berth", Slots: 10_001},
		"rounds":      {Binary: "berth", Rounds: -3},
		"warmup":      {Binary: "berth", Warmup: -time.Second},
		"window":      {Binary: "berth", Window: time.Millisecond},
	} {
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+" ") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := (Config{Binary: "berth"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestMoreLiveSessionsThanRoomAreRefused(t *testing.T) {
	t.Parallel()
	cfg := Config{Binary: "berth", Workers: 10, Slots: 10}
	for _, sessions := range []int{-1, 0, 51} {
		if _, err := Live(t.Context(), cfg, sessions); err == nil || !strings.Contains(err.Error(), "live sessions") {
			t.Errorf("%d sessions: %v", sessions, err)
		}
	}
}

func TestSessionKeyIsReadFromTheToken(t *testing.T) {
	t.Parallel()
	// {"skey":48121}
	if key, err := (answer{Token: "h.eyJza2V5Ijo0ODEyMX0.s"}).sessionKey(); key != 48121 || err != nil {
		t.Errorf("%d, %v", key, err)
	}
	for _, token := range []string{"", "h.s", "h.%.s", "h.e30x.s"} {
		if key, err := (answer{Token: token}).sessionKey(); err == nil {
			t.Errorf("%q has key %d", token, key)
		}
	}
}
