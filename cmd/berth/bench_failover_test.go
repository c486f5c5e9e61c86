package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthdev/berth/bench/failover"
)

func TestBenchFailoverKillsWorkersOfAFleetOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := filepath.Join(dir, "failover.json")
	var short failover.Short
	printed := quiet().prints(t, "bench", "failover", "--only", "kills", "--detector", "presence", "--kills", "3", "--calls", "6",
		"--json", "--out", kept, "--plots", dir)
	if err := json.Unmarshal([]byte(printed), &short); err != nil {
		t.Fatal(err)
	}
	if len(short.Kills) != 1 || short.Kills[0].N != 3 || short.Kills[0].Gap.P50 <= 0 || short.Kills[0].Notified.Max <= 0 {
		t.Errorf("%s: want three kills that survivors were told of", printed)
	}
	if c := short.Collateral; c.WronglyDropped+c.ActedTwice+c.LeftUncleaned > 0 {
		t.Errorf("collateral %+v", c)
	}
	for _, name := range []string{kept, filepath.Join(dir, "failover-detection.svg")} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("%s was not written: %v", name, err)
		}
	}
}

func TestBenchFailoverRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--only", "floods"}, {"--detector", "gossip"}, {"--workers", "1"}, {"--leases", "1ms"}} {
		if r := quiet().berth(t, append([]string{"bench", "failover"}, args...)...); r.code != 2 || r.stdout != "" {
			t.Errorf("%q: code %d, %s", args, r.code, r.stdout)
		}
	}
}
