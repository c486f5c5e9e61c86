package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthdev/berth/bench/fanout"
)

func TestBenchFanoutBringsEachMessageToAllMembers(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "fanout.json")
	var short fanout.Short
	printed := quiet().prints(t, "bench", "fanout", "--processes", "2", "--members", "20", "--pairs", "10", "--rounds", "1",
		"--warmup", "500ms", "--window", "2s", "--json", "--out", kept)
	if err := json.Unmarshal([]byte(printed), &short); err != nil {
		t.Fatal(err)
	}
	of := short.Fanout[fanout.Berth]
	if of.Writes <= 0 || of.Missing != 0 || of.Pairs == nil || of.Pairs.Writes <= 0 || of.Pairs.Missing != 0 {
		t.Fatalf("%s: want messages, all of which came", printed)
	}
	if of.Pairs.Received > 1.1*of.Pairs.Delivered {
		t.Errorf("%s: processes were told of messages that they had no member for", printed)
	}
	if info, err := os.Stat(kept); err != nil || info.Size() == 0 {
		t.Errorf("the report was not kept: %v", err)
	}
}

func TestBenchFanoutRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--members", "3"}, {"--only", "nothing"}, {"--size", "1"}, {"--processes", "100"}} {
		if r := quiet().berth(t, append([]string{"bench", "fanout"}, args...)...); r.code != 2 || r.stdout != "" {
			t.Errorf("%q: code %d, %s", args, r.code, r.stdout)
		}
	}
}
