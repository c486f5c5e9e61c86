package fanout

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

// twoTopics with two members each, one of them on two processes.
func twoTopics() (shape, *audience) {
	s := shape{name: Pairs, members: 4, topics: 2}
	a := &audience{shape: s, window: &window{}, holders: []map[int]bool{{0: true}, {1: true, 2: true}}}
	for i := range 4 {
		e := newEar(a.window)
		e.took = []time.Duration{time.Duration(i+1) * time.Millisecond}
		e.heard.Store(10)
		a.ears = append(a.ears, e)
	}
	return s, a
}

func TestMeasurementIsWhatTheWindowSaw(t *testing.T) {
	t.Parallel()
	s, a := twoTopics()
	begin := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return begin.Add(d) }
	o := observation{
		quiet: [2]reading{{at: begin}, {at: after(time.Second), servers: 20 * time.Millisecond}},
		from:  reading{at: after(2 * time.Second), servers: time.Second, received: 100, delivered: 90},
		to: reading{
			at: after(4 * time.Second), servers: 1400 * time.Millisecond, store: 100 * time.Millisecond, received: 133, delivered: 120,
			wakes: 60, listening: 40,
		},
		counts: []int64{10, 11}, publishing: 2 * time.Second, lost: 1,
		answers: []time.Duration{5 * time.Millisecond, 3 * time.Millisecond},
	}
	m := newMeasurement(s, Berth, 10, a, o)
	want := Measurement{
		Load: Pairs, System: Berth, Published: 10.5, Writes: 20, Missing: 2, P50: 2, P99: 4, Max: 4,
		Lost: 1, AnswerP50: 3, AnswerP99: 5,
		Received: 16.5, Delivered: 15, Needed: 16, Broadcast: 105, ProcessesPerTopic: 1.5, Ratio: 1.1, BroadcastRatio: 7,
		CPU: 10_000, CPUWithStore: 12_500, AboveQuiet: 11_500,
		ServersPercent: 20, StorePercent: 5, QuietPercent: 2, StoreWakes: 30, ListenerWakes: 20,
	}
	if m != want {
		t.Errorf("%+v\nwant %+v", m, want)
	}
	o.from.delivered, o.to.delivered = -10, -10
	if m := newMeasurement(s, Centrifuge, 10, a, o); m.Delivered != m.Needed {
		t.Errorf("delivered %g, needed %g: nobody else counts", m.Delivered, m.Needed)
	}
}

func TestReportHasMediansAndRatios(t *testing.T) {
	t.Parallel()
	r := newReport(Config{Binary: "berth"}.withDefaults(), lab.Host{})
	for i, cpu := range []float64{30, 10, 20} {
		r.add(Measurement{Load: Large, System: Berth, CPU: cpu, P99: 8, Missing: int64(i)})
	}
	var text strings.Builder
	if err := r.WriteTable(&text); err != nil || !strings.Contains(text.String(), "centrifuge was not measured") {
		t.Errorf("%v: %s", err, text.String())
	}
	r.add(Measurement{Load: Large, System: Centrifuge, CPU: 16, P99: 4})
	r.add(Measurement{Load: Pairs, System: Berth, Received: 5})
	if len(r.Medians) != 3 || r.Medians[0].CPU != 20 || r.Medians[0].Missing != 3 || r.Ratios[Large].CPU != 1.25 || r.Ratios[Large].P99 != 2 {
		t.Errorf("%+v", r)
	}
	text.Reset()
	if err := r.WriteTable(&text); err != nil || !strings.Contains(text.String(), "1.25") {
		t.Errorf("%v: %s", err, text.String())
	}
	short, err := json.Marshal(r.Short())
	if err != nil || !strings.HasPrefix(string(short), `{"fanout":{"berth":{"writes_per_s":0,"cpu_us_per_write":20,`) ||
		!strings.Contains(string(short), `"two_member_topics":{"writes_per_s":0,`) {
		t.Errorf("%s, %v", short, err)
	}
}
