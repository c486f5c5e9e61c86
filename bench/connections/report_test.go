package connections

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berthdev/berth/bench/lab"
)

func TestMeasurementIsTheDifferenceForEachConnection(t *testing.T) {
	t.Parallel()
	const kib = 1 << 10
	got := newMeasurement(Berth, 10, reading{rss: 100 * kib, kernel: 5 * kib, goroutines: 7},
		reading{rss: 300 * kib, heap: 100 * kib, stack: 20 * kib, kernel: 85 * kib, goroutines: 17})
	if want := (Measurement{
		Subject: Berth, RSS: 20, Heap: 10, Stack: 2, Kernel: 4, Goroutines: 1, IdleRSS: 100.0 / 1024,
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestReportHasMediansAndTheirRatio(t *testing.T) {
	t.Parallel()
	r := newReport(Config{N: 100, Subjects: []string{Berth, Centrifuge}}.withDefaults(), lab.Host{})
	r.subjects = []string{Berth, Centrifuge}
	for _, rss := range []float64{14, 99, 15} {
		r.add(Measurement{Subject: Berth, RSS: rss})
	}
	var text strings.Builder
	if err := r.WriteTable(&text); err != nil || !strings.Contains(text.String(), "centrifuge was not measured") {
		t.Errorf("%v: %s", err, text.String())
	}
	r.add(Measurement{Subject: Centrifuge, RSS: 30})
	if len(r.Medians) != 2 || r.Medians[0].RSS != 15 || r.RSSRatio != 0.5 || r.NoneRSSRatio != 0 {
		t.Errorf("%+v", r)
	}
	short, err := json.Marshal(r.Short())
	if err != nil || !strings.HasPrefix(string(short), `{"connections":{"berth":{"rss_kib":15,"heap_kib":0,"stack_kib":0,`) {
		t.Errorf("%s, %v", short, err)
	}
}
