package failover

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

// sampleReport has something of everything.
func sampleReport() *Report {
	r := &Report{
		Machine: Machine{Host: lab.Host{Cores: 2}, Workers: 3, APIs: 2, Calls: 20}, Article: &Article{},
		Collateral: Collateral{ActedTwice: 1, Findings: []string{"w1 was declared lost again"}},
	}
	for _, detector := range Detectors() {
		samples := []Sample{
			{Gap: []float64{100}, Confirm: []float64{400}, Notified: []float64{550, 600}},
			{Gap: []float64{300}, Confirm: []float64{420}, Notified: []float64{800}, Missed: 1},
		}
		r.Cases = append(r.Cases, newCase(PartKills, "kill", detector, samples))
		r.Pauses = append(r.Pauses, Pause{Detector: detector, Seconds: 5, Sessions: 10},
			Pause{Detector: detector, Seconds: 12, Sessions: 10, SessionsLost: 4, FalsePositives: 1})
		for _, n := range []int{50, 1000} {
			r.Costs = append(r.Costs, Cost{Detector: detector, Sessions: n, Workers: 3, Tick: newDistribution([]float64{4, 6})})
		}
		r.Lengths = append(r.Lengths, Length{detector, 2, 2, newDistribution([]float64{700})})
		r.Article.Cases = append(r.Article.Cases, newCase(PartArticle, "kill", detector, samples))
	}
	r.Costs = append(r.Costs, Cost{Detector: "presence", Sessions: 100_000, Workers: 1000, Tick: newDistribution([]float64{9}), Rows: true})
	leaders := newCase(PartLeaders, "river_killed", "presence", []Sample{{Gap: []float64{50}, Confirm: []float64{400}, Notified: []float64{900}}})
	leaders.Claims = &Claims{N: 10, P50: 2, P99: 9}
	crowd := newCase(PartMany, "crowd", "presence", []Sample{{Notified: []float64{1500}}})
	r.Cases = append(r.Cases, leaders, crowd)
	return r
}

func TestShortFormHasTheDocumentedShape(t *testing.T) {
	t.Parallel()
	r := sampleReport()
	r.Cases = append(r.Cases[:1], r.Cases[3:]...)
	r.Pauses, r.Costs = r.Pauses[:1], r.Costs[:1]
	got, err := json.Marshal(r.Short())
	want := `{"kills":[{"detector":"presence","n":2,"gap_ms":{"p50":100,"max":300},"confirm_ms":{"p50":400,"max":420},` +
		`"notified_ms":{"p50":600,"p99":800,"max":800}}],` +
		`"leader_kills":[{"detector":"presence","n":1,"gap_ms":{"p50":50,"max":50},"confirm_ms":{"p50":400,"max":400},` +
		`"notified_ms":{"p50":900,"p99":900,"max":900}}],` +
		`"pauses":[{"detector":"presence","pause_s":5,"false_positives":0,"sessions_lost":0}],` +
		`"tick_cost":[{"detector":"presence","sessions":50,"workers":3,"p50_ms":4}],` +
		`"collateral":{"wrongly_dropped":0,"acted_twice":1,"left_uncleaned":0}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
	empty, err := json.Marshal((&Report{}).Short())
	if err != nil || strings.Contains(string(empty), "null") {
		t.Errorf("%s, %v: lists without entries are lists", empty, err)
	}
}

func TestTableShowsEveryPart(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := sampleReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"KILLED", "crowd", "starts meanwhile", "PAUSE S", "100000 (rows)", "LEASE S", "its numbers here",
		"our defaults", "1 acted twice", "declared lost again",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the table lacks %q:\n%s", part, &out)
		}
	}
}

func TestPlotsAreWellFormedAndLabelled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plots")
	names, err := sampleReport().WritePlots(dir)
	if err != nil || len(names) != 4 {
		t.Fatalf("%q, %v: want four plots", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		decoder := xml.NewDecoder(bytes.NewReader(text))
		for err == nil {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		for _, word := range []string{"presence", "sweep", "lease", "seconds"} {
			if word == "seconds" && strings.Contains(name, "cost") {
				word = "milliseconds"
			}
			if !bytes.Contains(text, []byte(word)) {
				t.Errorf("%s lacks %q", name, word)
			}
		}
	}
}

func TestNothingIsDrawnOfNothing(t *testing.T) {
	t.Parallel()
	if names, err := (&Report{}).WritePlots(t.TempDir()); err != nil || len(names) != 0 {
		t.Errorf("%q, %v", names, err)
	}
}

func TestTotalsAddUpLabels(t *testing.T) {
	t.Parallel()
	totals, err := readTotals(strings.NewReader(`# HELP berth_detector_look_seconds Duration.
berth_detector_look_seconds_bucket{detector="presence",le="0.1"} 7
berth_detector_look_seconds_sum{detector="presence"} 0.5
berth_detector_look_seconds_count{detector="presence"} 4
berth_detector_look_seconds_sum{detector="lease"} 0.25
berth_detector_look_seconds_count{detector="lease"} 1
berth_reaper_tick_seconds_sum 2
berth_reaper_tick_seconds_count 8
berth_reaper_ticks_total{result="acted"} 8
`), metricTick, metricLook)
	if err != nil || totals[metricLook] != (total{0.75, 5}) || totals[metricTick] != (total{2, 8}) {
		t.Fatalf("%v, %v", totals, err)
	}
	durations := map[string][]float64{}
	differ(durations, totals, map[string]total{metricTick: {2.5, 10}, metricLook: {0.75, 5}})
	if got := durations[metricTick]; len(got) != 2 || got[0] != 250 || len(durations[metricLook]) != 0 {
		t.Errorf("%v: two ticks of 250 ms were between the scrapes, and no look", durations)
	}
}

func TestConfigNamesTheFieldThatCannotBe(t *testing.T) {
	t.Parallel()
	if err := (Config{Binary: "berth"}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for want, cfg := range map[string]Config{
		"binary": {}, "only": {Parts: []string{"all"}}, "detector": {Detectors: []string{"gossip"}}, "kills": {Kills: -1},
		"workers": {Workers: 2}, "apis": {APIs: 1}, "pauses": {Pauses: []time.Duration{time.Hour}},
		"leases": {Leases: []time.Duration{time.Millisecond}}, "levels": {Levels: []int{0}}, "rows": {Rows: []int{9, 8}},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want+" ") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestStepsAddUpOverParts(t *testing.T) {
	t.Parallel()
	cfg := Config{Binary: "berth", Detectors: []string{"presence"}, Kills: 4, Parts: []string{PartKills, PartPauses}}.withDefaults()
	if got := cfg.steps(); got != 4+5 {
		t.Errorf("%d steps, want four kills and five pauses", got)
	}
}
