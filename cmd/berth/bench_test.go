package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berthdev/berth/bench/claim"
)

// tiny makes a measurement that says nothing about speed, and does all that a long one does.
func tiny(more ...string) []string {
	return append([]string{
		"bench", "claims", "--rounds", "1", "--warmup", "200ms", "--window", "2s",
		"--workers", "20", "--slots", "2000", "--connections", "4", "--json",
	}, more...)
}

// quiet leaves the lines out that tell of progress.
func quiet() shell { return shell{"BERTH_LOG_LEVEL=warn"} }

func TestBenchClaimsMeasuresEverySubjectOnServersOfItsOwn(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "results", "claims.json")
	var figures map[string]claim.Figure
	if err := json.Unmarshal([]byte(quiet().prints(t, tiny("--out", kept)...)), &figures); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"http_null", "redis_article", "redis_lua", "pg_naive", "berth", "berth_lifecycle"} {
		if f := figures[name]; f.RPS <= 0 || f.P50 <= 0 || f.P99 < f.P50 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if len(figures) != 6 {
		t.Errorf("subjects %v, want six", figures)
	}
	text, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	var report claim.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if report.Machine.Settings["fsync"] != "on" || report.Machine.Settings["synchronous_commit"] != "on" {
		t.Errorf("settings %v: claims must be as durable as Postgres makes them by itself", report.Machine.Settings)
	}
}

func TestBenchClaimsRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--only", "etcd"},
		{"--connections", "-1"},
		{"--window", "1ms"},
		{"--lone", "--live", "5"},
	} {
		if r := quiet().berth(t, append([]string{"bench", "claims"}, args...)...); r.code != 2 || r.stdout != "" {
			t.Errorf("%q: code %d, %s", args, r.code, r.stdout)
		}
	}
}

// BenchmarkClaims runs the other measurements of `berth bench claims`, for so short that their numbers mean little.
func BenchmarkClaims(b *testing.B) {
	for flag, numbers := range map[string][]string{
		"--lone":         {"median_difference_ms", "p99_ratio"},
		"--live=500":     {"ratio"},
		"--tenant-lanes": {"ratio"},
	} {
		b.Run(flag, func(b *testing.B) {
			for b.Loop() {
				measured := measureTiny(b, flag)
				for _, name := range numbers {
					value, ok := measured[name].(float64)
					if !ok || value == 0 {
						b.Fatalf("%s is not in %v", name, measured)
					}
					b.ReportMetric(value, name)
				}
			}
		})
	}
}

func measureTiny(b *testing.B, flag string) (measured map[string]any) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	command := exec.Command(self, tiny(flag)...)
	command.Env = append(foreignEnvironment(), asBerth+"=1", "BERTH_LOG_LEVEL=warn")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal(out, &measured); err != nil {
		b.Fatalf("%s: %v", out, err)
	}
	return measured
}
