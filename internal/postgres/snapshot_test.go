package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
)

// slope fits a line through counts per equal period, and returns its value at the first and the last.
func slope(counts []float64) (first, last float64) {
	n := float64(len(counts))
	var sumX, sumY, sumXY, sumXX float64
	for i, y := range counts {
		x := float64(i)
		sumX, sumY, sumXY, sumXX = sumX+x, sumY+y, sumXY+x*y, sumXX+x*x
	}
	rise := (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	first = (sumY - rise*sumX) / n
	return first, first + rise*(n-1)
}

// A snapshot that somebody holds keeps every dead row. What claims and releases cost grows then, which is reported, and
// they stay right.
func TestProof_OpenSnapshotSlowsClaimsAndBreaksNothing(t *testing.T) {
	t.Parallel()
	const periods, processes = 10, 8
	r := newRig(t)
	for _, id := range ids("w", 10) {
		r.worker(id, 8)
	}
	tx, err := r.db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	r.ok(err)
	var live int
	r.ok(tx.QueryRow(t.Context(), "select count(*) from berth.sessions").Scan(&live))

	d := proofTime(t, 2*time.Second, 0.1)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var counts [periods]atomic.Int64
	var running sync.WaitGroup
	for i, store := range r.stores(processes) {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("s%d-%d", i, n)
				_, err := store.Place(t.Context(), start(id))
				counts[min(periods-1, int(time.Since(began)*periods/d))].Add(1)
				if err == nil {
					_, err = store.EndSession(t.Context(), "t1", id)
				}
				if err != nil {
					t.Errorf("process %d, step %d: %v", i, n, err)
					return
				}
			}
		})
	}
	running.Wait()
	r.ok(tx.QueryRow(t.Context(), "select count(*) from berth.sessions").Scan(&live)) // it was open all the time
	r.ok(tx.Rollback(t.Context()))

	rates := make([]float64, periods)
	for n := range counts {
		rates[n] = float64(counts[n].Load()) / (d / periods).Seconds()
	}
	first, last := slope(rates)
	t.Logf("beside an open snapshot of %v: from %.0f to %.0f claims/s (%+.1f %% a minute)",
		d, first, last, 100*(last-first)/max(first, 1)/d.Minutes())
	r.placeAll(80)
}

// placeAll fills n free slots, which are all.
func (r *rig) placeAll(n int) {
	r.Helper()
	for i := range n {
		r.place(start(fmt.Sprintf("all%d", i)))
	}
	r.placeRefused(berth.CodeAtCapacity, start("one-more"))
}
