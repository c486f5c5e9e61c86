package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// RetentionStore deletes what is old, or dead, and rotates keys.
type RetentionStore interface {
	PurgeSessions(ctx context.Context, age time.Duration, limit int) (int, error)
	PurgeIdempotency(ctx context.Context, age time.Duration, limit int) (int, error)
	PurgeHistory(ctx context.Context, age time.Duration) error
	ForgetEvents(ctx context.Context) (int, error)
	VacuumSlots(ctx context.Context, least int) error
	RotateKeys(ctx context.Context) error
}

const (
	// endedFor is how long an ended session can still be read.
	endedFor = 24 * time.Hour
	// historyFor is how long closed gaps and counts of refusals are kept.
	historyFor = 7 * 24 * time.Hour
)

// retain deletes what is old, in chunks. A step that fails does not keep the others from their work.
func retain(ctx context.Context, store RetentionStore) error {
	_, forgot := store.ForgetEvents(ctx)
	return errors.Join(
		failed("purge ended sessions", inChunks(ctx, endedFor, store.PurgeSessions)),
		failed("purge idempotency keys", inChunks(ctx, berth.IdempotencyWindow, store.PurgeIdempotency)),
		failed("empty the next partition of the history", forgot),
		failed("purge history", store.PurgeHistory(ctx, historyFor)),
	)
}

// failed says which step an error is of.
func failed(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
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
