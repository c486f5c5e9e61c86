package postgres_test

import (
	"fmt"
	"testing"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// BenchmarkClaimBatch places batches on a cell of 1,000 workers with 8 slots each, and ends them: a caller alone, as many
// as 64 connections make, and the largest. The claim alone is timed.
func BenchmarkClaimBatch(b *testing.B) {
	for _, size := range []int{1, 32, berth.MaxBatch} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) { benchmarkClaims(b, size) })
	}
}

func benchmarkClaims(b *testing.B, size int) {
	b.Helper()
	db := databases.Database(b)
	store := openStore(b, db, postgres.Config{})
	for _, statement := range []string{
		`insert into berth.regions (id) values ('eu')`,
		`insert into berth.tenants (id) values ('t1')`,
		`select berth.register_worker('w' || n, n, 'eu', 8, 'ws://', 'http://', '', 3600) from generate_series(1, 1000) n`,
		`select berth.open_worker('w' || n, n) from generate_series(1, 1000) n`,
		`analyze`,
	} {
		if _, err := db.Pool.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	placed := 0
	for b.Loop() {
		starts, ends := make([]berth.Start, size), make([]berth.End, size)
		for i := range starts {
			starts[i] = start(fmt.Sprintf("s%d", placed+i))
		}
		placed += size
		results, err := store.ClaimSessions(b.Context(), starts)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for i, result := range results {
			if result.Err != nil || result.Contended {
				b.Fatal(result)
			}
			ends[i] = berth.End{Held: heldOf(result.Placement.Session), Reason: berth.EndedLeft}
		}
		if err := store.EndSessions(b.Context(), ends); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(placed)/b.Elapsed().Seconds(), "sessions/s")
}
