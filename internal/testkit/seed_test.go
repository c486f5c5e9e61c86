package testkit

import (
	"strings"
	"testing"
)

func TestSeedIsRepeatable(t *testing.T) {
	t.Setenv(seedVar, "-42")
	if seed := Seed(t); seed != -42 {
		t.Errorf("got %d", seed)
	}
	if a, b := Rand(t).Uint64(), Rand(t).Uint64(); a != b {
		t.Errorf("one seed gave %d and %d", a, b)
	}
}

func TestSeedsDiffer(t *testing.T) {
	t.Setenv(seedVar, "")
	if a, b := Seed(t), Seed(t); a == b {
		t.Errorf("twice %d", a)
	}
}

func TestSeedRefusesNonsense(t *testing.T) {
	t.Setenv(seedVar, "1e3")
	failures := onSpy(t, func(tb testing.TB) {
		tb.Helper()
		Seed(tb)
	})
	if !strings.Contains(failures, seedVar) {
		t.Errorf("got %q", failures)
	}
}
