package jobs

import (
	"context"
	"fmt"
	"time"
)

// RetentionStore deletes what is old, and rotates keys.
type RetentionStore interface {
	PurgeSessions(ctx context.Context, age time.Duration, limit int) (int, error)
	PurgeHistory(ctx context.Context, age time.Duration) error
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
	for {
		purged, err := store.PurgeSessions(ctx, endedFor, chunk)
		if err != nil {
			return fmt.Errorf("purge ended sessions: %w", err)
		}
		if purged < chunk {
			break
		}
	}
	if err := store.PurgeHistory(ctx, historyFor); err != nil {
		return fmt.Errorf("purge history: %w", err)
	}
	return nil
}
