package postgres

import (
	"context"
	"errors"

	"github.com/berthdev/berth/internal/berth"
)

// Queries are the statements by name.
func Queries() (map[string]string, error) { return loadQueries() }

// Fault is what calls make of the driver's errors.
func Fault(err error) error { return fault(err) }

// MaxRefusalCounts bounds the counts of one period.
const MaxRefusalCounts = maxRefusalCounts

// Flush writes the counts now.
func Flush(ctx context.Context, c *RefusalCounter) { c.flush(ctx) }

// ClaimResult is the answer to one element of a batch.
type ClaimResult struct {
	Placement berth.Placement
	Err       error
	Contended bool // no placement, and a refusal would not be true: ask again shortly
}

// ClaimSessions places a batch in one statement, without the batcher.
func (s *Store) ClaimSessions(ctx context.Context, starts []berth.Start) ([]ClaimResult, error) {
	requests := make([]claimRequest, len(starts))
	for i, start := range starts {
		requests[i] = claimRequest{start: start}
	}
	verdicts, err := s.claimBatch(ctx, requests)
	if err != nil {
		return nil, err
	}
	results := make([]ClaimResult, len(starts))
	for i, v := range verdicts {
		results[i] = ClaimResult{Placement: v.result.placement, Err: v.result.refusal, Contended: v.again}
	}
	return results, nil
}

// Attending says whether starts of a store may wait for capacity.
func Attending(s *Store) bool { return s.queue.owner() != nil }

// RehearseNow has one connection rehearse, and says whether it could without being in somebody's way.
func RehearseNow(ctx context.Context, s *Store) (could bool, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	err = s.rehearse(ctx, conn.Conn())
	if errors.Is(err, errNotNow) {
		return false, nil
	}
	return true, err
}

// Unrehearsed is how many connections of the pool are yet to rehearse.
func Unrehearsed(s *Store) int {
	s.rehearsal.mu.Lock()
	defer s.rehearsal.mu.Unlock()
	return len(s.rehearsal.new)
}
