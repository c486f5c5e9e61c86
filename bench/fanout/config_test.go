package fanout

import (
	"strings"
	"testing"
	"time"
)

func TestConfigThatCannotBeNamesTheField(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]Config{
		"binary":    {},
		"only":      {Binary: "berth", Loads: []string{"huge"}},
		"processes": {Binary: "berth", Processes: 65},
		"members":   {Binary: "berth", Members: 3},
		"pairs":     {Binary: "berth", Pairs: -1},
		"rate":      {Binary: "berth", Rate: -1},
		"pair-rate": {Binary: "berth", PairRate: 11},
		"size":      {Binary: "berth", Size: 10},
		"window":    {Binary: "berth", Window: 2 * time.Hour},
		"rounds":    {Binary: "berth", Rounds: -1},
		"history":   {Binary: "berth", History: -1},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := (Config{Binary: "berth", Members: 20, Pairs: 20}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestMembersShareTheTopicsOfALoad(t *testing.T) {
	t.Parallel()
	cfg := Config{Members: 20, Pairs: 10}.withDefaults()
	large, pairs := cfg.shape(Large), cfg.shape(Pairs)
	if large.topicOf(0) != 0 || large.topicOf(19) != 0 || large.rate != 20 {
		t.Errorf("%+v", large)
	}
	if pairs.members != 20 || pairs.topicOf(0) != pairs.topicOf(1) || pairs.topicOf(19) != 9 || pairs.rate != 10 || pairs.topic(3) != "pairs:3" {
		t.Errorf("%+v", pairs)
	}
}
