package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

func TestRefusalsAreCountedAndShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	counter := postgres.NewRefusalCounter(r.store, testkit.Logger(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		counter.Run(ctx)
	}()
	for range 3 {
		counter.Record("t1", "", berth.CodeAtCapacity)
	}
	counter.Record("t1", "eu", berth.CodeAtCapacity)
	cancel()
	<-done // it writes what is left
	counter.Record("t1", "", berth.CodeAtCapacity)
	postgres.Flush(t.Context(), counter) // of the same minute, most likely
	postgres.Flush(t.Context(), counter) // of nothing
	n := read[int](r, "select sum(refusals)::int from berth.rejections where tenant_id = 't1' and region is null and code = 'at_capacity'")
	rows := read[int](r, "select count(distinct region)::int from berth.rejections")
	if n != 4 || rows != 1 {
		t.Errorf("%d refusals for any region, %d regions", n, rows)
	}
}

func TestRefusalCountsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	counter := postgres.NewRefusalCounter(r.store, testkit.Logger(t))
	for i := range postgres.MaxRefusalCounts + 100 {
		counter.Record(fmt.Sprintf("t%d", i), "", berth.CodeAtCapacity)
	}
	counter.Record("t0", "", berth.CodeAtCapacity) // known: still counted
	postgres.Flush(t.Context(), counter)
	n := read[int](r, "select count(*)::int from berth.refusal_counts")
	of := read[int](r, "select sum(refusals)::int from berth.refusal_counts where tenant_id = 't0'")
	if n != postgres.MaxRefusalCounts || of != 2 {
		t.Errorf("%d rows, %d of t0", n, of)
	}
}
