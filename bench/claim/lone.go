package claim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/bench/load"
)

// LoneReport says what one request costs that meets no other, next to the least that a durable write can cost.
type LoneReport struct {
	Machine Machine `json:"machine"`
	Median  Lone    `json:"median"`
	Rounds  []Lone  `json:"rounds"`
}

// Lone is one round: placements over HTTP, in turn with one-row inserts that commit, over a connection of their own.
type Lone struct {
	Pairs int `json:"pairs"`
	// Berth and Commit are percentiles in milliseconds.
	Berth  Latency `json:"berth"`
	Commit Latency `json:"commit"`
	// Difference is the median of a placement's time less that of the commit next to it, in milliseconds.
	Difference float64 `json:"median_difference_ms"`
	// P99Ratio is the 99th percentile of placements divided by that of commits.
	P99Ratio float64 `json:"p99_ratio"`
}

// Latency is two percentiles in milliseconds.
type Latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// MeasureLone measures lone requests.
func MeasureLone(ctx context.Context, cfg Config) (*LoneReport, error) {
	cfg.Connections = 1
	return withRig(ctx, cfg, func(r *rig) (report *LoneReport, err error) {
		report = &LoneReport{}
		if report.Machine, err = r.machine(ctx); err != nil {
			return nil, err
		}
		for round := range r.cfg.Rounds {
			lone, err := r.measureLone(ctx)
			if err != nil {
				return nil, fmt.Errorf("measure lone requests: %w", err)
			}
			r.cfg.Logger.InfoContext(ctx, "measured", "round", round+1, "pairs", lone.Pairs,
				"median_difference_ms", lone.Difference, "p99_ratio", lone.P99Ratio)
			report.Rounds = append(report.Rounds, lone)
		}
		report.Median = loneMedians(report.Rounds)
		return report, nil
	})
}

func (r *rig) measureLone(ctx context.Context) (lone Lone, err error) {
	s, err := r.raise(ctx, Berth, berthTemplate, 1)
	if err != nil {
		return lone, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	p, err := dialPlacer(ctx, s.servers[0].address, r.key(0), "lone-", r.cfg.Warmup+r.cfg.Window)
	if err != nil {
		return lone, err
	}
	defer func() { _ = p.client.Close() }() // its answers are all there
	err = r.within(ctx, s.database, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create table bare (id bigint generated always as identity primary key, at timestamptz)")
		if err != nil {
			return err
		}
		insert := func(ctx context.Context) error {
			_, err := conn.Exec(ctx, "insert into bare (at) values (clock_timestamp())")
			return err
		}
		if _, _, err := r.inTurn(ctx, r.cfg.Warmup, p.Call, insert); err != nil {
			return err
		}
		placements, commits, err := r.inTurn(ctx, r.cfg.Window, p.Call, insert)
		if err == nil {
			lone = newLone(placements, commits)
		}
		return err
	})
	return lone, errors.Join(err, s.audit(ctx, p.started))
}

// inTurn makes two calls one after another, for a while, and times each.
func (r *rig) inTurn(
	ctx context.Context, while time.Duration, one, other func(context.Context) error,
) (ones, others []time.Duration, err error) {
	for end := time.Now().Add(while); time.Now().Before(end); {
		began := time.Now()
		if err := one(ctx); err != nil {
			return nil, nil, err
		}
		between := time.Now()
		if err := other(ctx); err != nil {
			return nil, nil, err
		}
		ones, others = append(ones, between.Sub(began)), append(others, time.Since(between))
	}
	return ones, others, nil
}

func newLone(placements, commits []time.Duration) Lone {
	differences := make([]float64, len(placements))
	for i, placement := range placements {
		differences[i] = milliseconds(placement - commits[i])
	}
	lone := Lone{
		Pairs: len(placements), Berth: newLatency(placements), Commit: newLatency(commits), Difference: load.Median(differences),
	}
	if lone.Commit.P99 > 0 {
		lone.P99Ratio = lone.Berth.P99 / lone.Commit.P99
	}
	return lone
}

func newLatency(took []time.Duration) Latency {
	sorted := slices.Sorted(slices.Values(took))
	return Latency{milliseconds(load.Percentile(sorted, 50)), milliseconds(load.Percentile(sorted, 99))}
}

func loneMedians(rounds []Lone) Lone {
	over := func(number func(Lone) float64) float64 { return medianOf(rounds, number) }
	return Lone{
		Pairs:      int(over(func(l Lone) float64 { return float64(l.Pairs) })),
		Berth:      Latency{over(func(l Lone) float64 { return l.Berth.P50 }), over(func(l Lone) float64 { return l.Berth.P99 })},
		Commit:     Latency{over(func(l Lone) float64 { return l.Commit.P50 }), over(func(l Lone) float64 { return l.Commit.P99 })},
		Difference: over(func(l Lone) float64 { return l.Difference }),
		P99Ratio:   over(func(l Lone) float64 { return l.P99Ratio }),
	}
}

// Short is the medians.
func (r *LoneReport) Short() any { return r.Median }

// WriteTable writes the report for people.
func (r *LoneReport) WriteTable(w io.Writer) error {
	if err := r.Machine.write(w); err != nil {
		return err
	}
	m := r.Median
	_, err := fmt.Fprintf(w, `
             P50 MS   P99 MS   (%d pairs a round)
placement  %8.2f %8.2f
commit     %8.2f %8.2f
median difference %.2f ms, p99 ratio %.2f
`, m.Pairs, m.Berth.P50, m.Berth.P99, m.Commit.P50, m.Commit.P99, m.Difference, m.P99Ratio)
	return err
}
