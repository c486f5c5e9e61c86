package jobs

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
)

// fakeLoads is a RebalanceStore whose worker w2 went away, whose worker w3 cannot be written, and whose worker w6 has an order
// of somebody.
type fakeLoads struct {
	loads []berth.WorkerLoad
	err   error
	shed  map[string]berth.ShedOrder
}

var errWrite = errors.New("not written")

func (f *fakeLoads) Loads(context.Context) ([]berth.WorkerLoad, error) { return f.loads, f.err }

func (f *fakeLoads) OrderShed(_ context.Context, id string, _ berth.Instance, order berth.ShedOrder) error {
	switch id {
	case "w2":
		return berth.Refuse(berth.CodeNotFound, "gone")
	case "w3":
		return errWrite
	case "w6":
		return berth.Refuse(berth.CodeConflict, "busy")
	}
	f.shed[id] = order
	return nil
}

func TestRebalanceOrdersWhatIsPlanned(t *testing.T) {
	t.Parallel()
	store := &fakeLoads{shed: map[string]berth.ShedOrder{}, loads: []berth.WorkerLoad{
		{WorkerID: "w1", Instance: 1, Connections: 1000},
		{WorkerID: "w2", Instance: 2, Connections: 1000},
		{WorkerID: "w3", Instance: 3, Connections: 1000},
		{WorkerID: "w4", Instance: 4, Connections: 1000},
		{WorkerID: "w5", Instance: 5},
		{WorkerID: "w6", Instance: 6, Connections: 1000},
	}}
	r, err := newRebalancer(store, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.rebalance(t.Context()); !errors.Is(err, errWrite) || berth.RefusalCode(err) != "" {
		t.Errorf("got %v", err)
	}
	want := map[string]berth.ShedOrder{
		"w1": {Count: 20, Spread: berth.ShedSpread, Automatic: true}, "w4": {Count: 20, Spread: berth.ShedSpread, Automatic: true},
	}
	if diff := cmp.Diff(want, store.shed); diff != "" {
		t.Error(diff)
	}
	store.err = berth.ErrUnavailable
	if err := r.rebalance(t.Context()); !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
