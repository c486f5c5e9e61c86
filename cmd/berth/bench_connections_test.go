package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthdev/berth/bench/connections"
)

func TestBenchConnectionsOpensThemAll(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "results", "connections.json")
	var short connections.Short
	printed := quiet().prints(t, "bench", "connections", "--n", "20", "--rounds", "1", "--ping", "1s", "--only", "berth,berth_many",
		"--json", "--out", kept)
	if err := json.Unmarshal([]byte(printed), &short); err != nil {
		t.Fatal(err)
	}
	if _, measured := short.Connections[connections.BerthMany]; !measured || len(short.Connections) != 2 {
		t.Errorf("%s: want two subjects", printed) // so few connections may take less memory than the start gave back
	}
	if info, err := os.Stat(kept); err != nil || info.Size() == 0 {
		t.Errorf("the report was not kept: %v", err)
	}
}

func TestBenchConnectionsRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--n", "3"}, {"--only", "centrifuge"}, {"--only", "nothing"}, {"--topics", "1000"}} {
		if r := quiet().berth(t, append([]string{"bench", "connections"}, args...)...); r.code != 2 || r.stdout != "" {
			t.Errorf("%q: code %d, %s", args, r.code, r.stdout)
		}
	}
}
