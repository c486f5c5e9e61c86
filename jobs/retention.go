package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// RetentionStore deletes what is old, and rotates keys.
type RetentionStore interface {
	PurgeSessions(ctx context.Context, age time.Duration, limit int) (int, error)
	PurgeIdempotency(ctx context.Context, age time.Duration, limit int) (int, error)
	PurgeHistory(ctx context.Context, age time.Duration) error
	ForgetEvents(ctx context.Context) (int, error)
	RotateKeys(ctx context.Context) error
}

const (
	// endedFor is how long an ended session can still be read.
	endedFor = 24 * time.Hour
	// historyFor is how long closed gaps and counts of refusals are kept.
	historyFor = 7 * 24 * time.Hour
)

// retain deletes what is old, in chunks.
func retain(ctx context.Context, store RetentionStore) error {
	if err := inChunks(ctx, endedFor, store.PurgeSessions); err != nil {
		return fmt.Errorf("purge ended sessions: %w", err)
	}
	if err := inChunks(ctx, berth.IdempotencyWindow, store.PurgeIdempotency); err != nil {
		return fmt.Errorf("purge idempotency keys: %w", err)
	}
	if _, err := store.ForgetEvents(ctx); err != nil {
		return fmt.Errorf("empty the next partition of the history: %w", err)
	}
	if err := store.PurgeHistory(ctx, historyFor); err != nil {
		return fmt.Errorf("purge history: %w", err)
	}
	return nil
}

// inChunks purges what is older than age until less than a chunk was left.
func inChunks(
	ctx context.Context, age time.Duration, purge func(ctx context.Context, age time.Duration, limit int) (int, error),
) error {
	for {
		purged, err := purge(ctx, age, chunk)
		if err != nil || purged < chunk {
			return err
		}
	}
}
