package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthdev/berth/bench/storm"
)

// stormOf runs `berth bench storm` with few clients. Whether it is fast enough is not for tests, which share their machine.
func stormOf(t *testing.T, args ...string) map[string]storm.ShortCase {
	t.Helper()
	args = append([]string{"bench", "storm", "--n", "60", "--drained", "40", "--topics", "5", "--every", "500ms", "--before", "2s", "--json"}, args...)
	r := quiet().berth(t, args...)
	var short storm.Short
	if err := json.Unmarshal([]byte(r.stdout), &short); err != nil {
		t.Fatalf("code %d, %s: %v\n%s", r.code, r.stdout, err, r.stderr)
	}
	for name, c := range short.Storm {
		if c.Lost == 0 || c.Back != c.Lost || c.FailedAuth+c.SecondDeaths+c.Missed > 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	return short.Storm
}

func TestBenchStormKillsAWorkerAndEverybodyComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, drawn := filepath.Join(dir, "storm.json"), filepath.Join(dir, "storm.svg")
	cases := stormOf(t, "--only", "kill", "--out", kept, "--plot", drawn)
	if c := cases[storm.CaseKill]; c.Abnormal != c.Lost || c.ModelS < 4 || c.BeforeP99 <= 0 || c.DuringP99 <= 0 {
		t.Errorf("kill: %+v", c)
	}
	for _, name := range []string{kept, drawn} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("%s was not written: %v", name, err)
		}
	}
}

func TestBenchStormWithExpiredTokensNeedsNoMoreThanARejoin(t *testing.T) {
	t.Parallel()
	cases := stormOf(t, "--only", "expired")
	if c := cases[storm.CaseExpired]; c.Abnormal != c.Lost || c.Refusals > 0 {
		t.Errorf("expired: %+v", c)
	}
}

func TestBenchStormDrainsAWorkerWhoseClientsMissNothing(t *testing.T) {
	t.Parallel()
	cases := stormOf(t, "--only", "drain", "--deadline", "6s")
	if c := cases[storm.CaseDrain]; c.Lost != 40 || c.Abnormal != 0 {
		t.Errorf("drain: %+v", c)
	}
}

func TestBenchStormShedsClientsThatMissNothing(t *testing.T) {
	t.Parallel()
	cases := stormOf(t, "--only", "shed", "--spread", "4s")
	if c := cases[storm.CaseShed]; c.Lost < 15 || c.Abnormal != 0 {
		t.Errorf("shed: %+v", c)
	}
}

func TestBenchStormRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--only", "rain"}, {"--n", "1"}, {"--workers", "1"}, {"--deadline", "1ms"}} {
		if r := quiet().berth(t, append([]string{"bench", "storm"}, args...)...); r.code != 2 || r.stdout != "" {
			t.Errorf("%q: code %d, %s", args, r.code, r.stdout)
		}
	}
	if r := quiet().berth(t, "bench", "storm", "--against", "127.0.0.1:1"); r.code != 1 || r.stdout != "" {
		t.Errorf("code %d, %s", r.code, r.stdout)
	}
}
