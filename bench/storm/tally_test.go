package storm

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

func TestModelOfTheArticle(t *testing.T) {
	t.Parallel()
	if m := newModel(50_000, 7*2000, 20_000, 1e9); m.Arrivals != 12_500 || m.Capacity != 14_000 || m.ClearsS != 4 {
		t.Errorf("%+v", m)
	}
	if m := newModel(5000, 2*2000, 1000, 500); m.Capacity != 500 || m.ClearsS != 10 {
		t.Errorf("a slow machine: %+v", m)
	}
}

// way is one client's events, by seconds since the fault.
func way(from time.Time, events ...event) []event {
	for i := range events {
		events[i].at = from.Add(events[i].at.Sub(time.Time{}))
		events[i].made = events[i].at
	}
	return events
}

func after(s float64) time.Time { return time.Time{}.Add(time.Duration(s * float64(time.Second))) }

func TestWayBackIsReadFromWhatHappened(t *testing.T) {
	t.Parallel()
	from := time.Now()
	w := follow(way(from,
		event{what: lost, at: after(0.1), code: lostCode},
		event{what: dialed, at: after(1)},
		event{what: asked, at: after(1.5), code: 503},
		event{what: asked, at: after(2), code: 200},
		event{what: dialed, at: after(2.1), code: 101},
		event{what: refused, at: after(2.2), code: 1013},
		event{what: dialed, at: after(3), code: 101},
		event{what: back, at: after(3.1)},
	))
	if w.code != lostCode || w.attempts != 5 || !w.rejoined || w.failedAuth != 0 || w.backAt.Sub(from).Round(time.Millisecond) != 3100*time.Millisecond {
		t.Errorf("%+v", w)
	}
	if want := []string{"handshake: no answer", "rejoin: 503", "close: 1013"}; !slices.Equal(w.refusals, want) {
		t.Errorf("refusals %q", w.refusals)
	}
	if again := follow(way(from, event{what: lost, code: 1012}, event{what: back}, event{what: lost, code: lostCode})); !again.backAt.IsZero() || again.code != 1012 {
		t.Errorf("lost again: %+v", again)
	}
	denied := follow(way(from, event{what: lost}, event{what: asked, code: 401}, event{what: refused, code: 4401}, event{what: over}))
	if denied.failedAuth != 2 || !denied.backAt.IsZero() {
		t.Errorf("denied: %+v", denied)
	}
}

func TestTraceHearsTheSDK(t *testing.T) {
	t.Parallel()
	tr := &trace{}
	log := slog.New(tr)
	ctx := context.Background()
	began := time.Now()
	log.InfoContext(ctx, "connected")
	log.InfoContext(ctx, "link lost", "code", 1006, "err", errors.New("broken"))
	log.InfoContext(ctx, "link lost", "code", 0, "err", errors.New("refused")) // a request, which the transport tells
	log.InfoContext(ctx, "link lost", "code", 4410, "err", errors.New("moved"))
	if tr.stands() || tr.returned(time.Now()) {
		t.Error("it stands")
	}
	log.InfoContext(ctx, "connected")
	var kinds []what
	for _, e := range tr.since(began) {
		kinds = append(kinds, e.what)
	}
	if first := tr.since(began)[1]; first.code != lostCode || first.why != "broken" {
		t.Errorf("lost: %+v", first)
	}
	if !slices.Equal(kinds, []what{back, lost, refused, back}) || !tr.returned(began) {
		t.Errorf("%v", kinds)
	}
}

func TestHearingCountsWhatIsMissingOrDoubled(t *testing.T) {
	t.Parallel()
	h := &hearing{epoch: time.Now()}
	h.subscribed(sdk.Subscribed{Offset: 5})
	for _, offset := range []int64{6, 7, 7, 8, 11} {
		h.message(sdk.Message{Offset: offset, Data: []byte("0")})
	}
	h.subscribed(sdk.Subscribed{Offset: 11, Recovered: sdk.RecoveredAll})
	h.expect(14)
	if h.missed != 1+2+3 || h.partial != 0 || h.messages != 5 || len(between(h.latencies, h.epoch.Add(-time.Second), time.Now())) != 5 {
		t.Errorf("%+v", h)
	}
	h.subscribed(sdk.Subscribed{Offset: 20, Recovered: sdk.RecoveredPart})
	h.message(sdk.Message{Offset: 21, Data: []byte("0")})
	if h.missed != 6 || h.partial != 1 {
		t.Errorf("%+v", h)
	}
}

// aStorm is a case of three clients.
func aStorm() Case {
	from := time.Now()
	c := Case{Name: CaseKill, Clients: 9, Codes: map[string]int{}, Ways: map[string]int{}, Refusals: map[string]int{}}
	timeline := map[int]*Point{}
	for i := range 3 {
		at := float64(i + 1)
		w := follow(way(from, event{what: lost, at: after(0.01), code: lostCode}, event{what: asked, at: after(at), code: 200},
			event{what: dialed, at: after(at), code: 101}, event{what: back, at: after(at)}))
		c.Lost, c.Back = c.Lost+1, c.Back+1
		c.ClearedS = max(c.ClearedS, w.backAt.Sub(from).Seconds())
		w.mark(timeline, from)
	}
	c.draw(timeline)
	m := newModel(3, 4000, 1000, 100)
	c.Model, c.Ratio = &m, c.ClearedS/m.ClearsS
	return c
}

func TestCurveAndPlotShowWhoIsBack(t *testing.T) {
	t.Parallel()
	c := aStorm()
	if last := c.Curve[len(c.Curve)-1]; last.Back != 3 || c.Handshakes != 3 || c.Peak != 10 || c.Asked != 20 {
		t.Errorf("%+v: %+v", c, last)
	}
	name := filepath.Join(t.TempDir(), "storm.svg")
	drawn, err := (&Report{Cases: []Case{c, {Name: CaseDrain, Lost: 1}}}).WritePlot(name)
	text, readErr := os.ReadFile(name)
	if err := errors.Join(err, readErr); err != nil || !drawn || !strings.Contains(string(text), "full jitter: 3.0 s") {
		t.Errorf("drawn %t, %v", drawn, err)
	}
	if drawn, err := (&Report{}).WritePlot(name); drawn || err != nil {
		t.Errorf("of nothing: %t, %v", drawn, err)
	}
}

func TestFaultsAreWhatNoStormMayDo(t *testing.T) {
	t.Parallel()
	if faults := aStorm().Faults(); len(faults) != 0 {
		t.Errorf("a good one: %q", faults)
	}
	for what, spoil := range map[string]func(*Case){
		"nobody lost":       func(c *Case) { c.Lost, c.Back = 0, 0 },
		"did not come back": func(c *Case) { c.Back-- },
		"authentications":   func(c *Case) { c.FailedAuth = 1 },
		"workers died":      func(c *Case) { c.SecondDeaths = 1 },
		"other workers":     func(c *Case) { c.OthersLost = 1 },
		"missed":            func(c *Case) { c.Partial = 1 },
		"times the model":   func(c *Case) { c.Ratio = 2.1 },
		"round trips":       func(c *Case) { c.RoundTrip = newRoundTrip([]float64{10}, nil, []float64{31}) },
		"1006":              func(c *Case) { c.Name, c.Codes = CaseShed, map[string]int{"1006": 1} },
		"still where":       func(c *Case) { c.Name = CaseDrain },
	} {
		c := aStorm()
		spoil(&c)
		if faults := c.Faults(); len(faults) != 1 || !strings.Contains(faults[0], what) {
			t.Errorf("%s: %q", what, faults)
		}
	}
	small := aStorm()
	small.Tolerated, small.RoundTrip = 100, newRoundTrip([]float64{1}, nil, []float64{99})
	if faults := small.Faults(); len(faults) != 0 {
		t.Errorf("nobody notices: %q", faults)
	}
	worse := aStorm()
	worse.Name, worse.Ratio, worse.RoundTrip.Ratio = CaseNoJitter, 9, 9
	if faults := worse.Faults(); len(faults) != 0 {
		t.Errorf("without jitter: %q", faults)
	}
}

func TestReportIsWrittenForPeople(t *testing.T) {
	t.Parallel()
	var out, words strings.Builder
	c := aStorm()
	c.SecondDeaths = 1
	if err := errors.Join((&Report{Cases: []Case{c}}).WriteTable(&out), c.WriteWords(&words)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "NOT GOOD: 1 more workers died") || !strings.Contains(words.String(), "That is not good:\n  - 1 more workers died") {
		t.Errorf("%s\n%s", out.String(), words.String())
	}
}

func TestConfigNamesWhatCannotBe(t *testing.T) {
	t.Parallel()
	if err := (Config{Binary: "berth"}).Validate(); err != nil {
		t.Error(err)
	}
	for field, c := range map[string]Config{
		"binary": {}, "only": {Binary: "b", Cases: []string{"rain"}}, "n": {Binary: "b", N: 3}, "drained": {Binary: "b", Drained: 1},
		"workers": {Binary: "b", Workers: 1}, "apis": {Binary: "b", APIs: 17}, "every": {Binary: "b", Every: 1}, "before": {Binary: "b", Before: 1},
		"deadline": {Binary: "b", Deadline: time.Millisecond}, "spread": {Binary: "b", Spread: 1}, "patience": {Binary: "b", Patience: 1},
	} {
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
