package connections

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConfigThatCannotBeNamesTheField(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]Config{
		"binary": {},
		"n ":     {Binary: "berth", N: 7},
		"topics": {Binary: "berth", Topics: 129},
		"rounds": {Binary: "berth", Rounds: -1},
		"ping":   {Binary: "berth", Ping: time.Millisecond},
		"only":   {Binary: "berth", Subjects: []string{"berth", "socket.io"}},
	} {
		cfg.N = max(cfg.N, 2)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := (Config{Binary: "berth", N: 2, Subjects: []string{Centrifuge}}).Validate(); err == nil || !strings.Contains(err.Error(), "--centrifuge") {
		t.Errorf("nothing is left to measure: %v", err)
	}
}

func TestMoreConnectionsThanOpenFilesAreRefused(t *testing.T) {
	t.Parallel()
	if err := (Config{Binary: "berth", N: 1_000_000}).Validate(); err != nil && !strings.Contains(err.Error(), "open files") {
		t.Error(err)
	}
}

func TestWithoutItsServerTheLibraryIsLeftOut(t *testing.T) {
	t.Parallel()
	if got := (Config{}).withDefaults().Subjects; slices.Contains(got, Centrifuge) || slices.Contains(got, CentrifugeLean) || len(got) != 4 {
		t.Errorf("%q", got)
	}
	if got := (Config{Centrifuge: "server"}).withDefaults().Subjects; len(got) != len(Subjects()) {
		t.Errorf("%q", got)
	}
}

func TestTwoConnectionsShareTheirTopics(t *testing.T) {
	t.Parallel()
	if a, b, c := topicsOf(0, 20), topicsOf(1, 20), topicsOf(2, 20); !slices.Equal(a, b) || len(a) != 20 || slices.Contains(c, a[0]) {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}
