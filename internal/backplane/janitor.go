package backplane

import (
	"context"
	"time"
)

// tidy deletes interest that nobody uses any more, and at the end all that there is.
func (b *Bus) tidy(ctx context.Context) {
	for ctx.Err() == nil {
		names, next := b.streams.abandon(b.config.Linger)
		if len(names) > 0 {
			if err := b.store.unsubscribe(ctx, names); err != nil && ctx.Err() == nil {
				// It is deleted when somebody publishes there, or with the process.
				b.config.Logger.WarnContext(ctx, "backplane interest not deleted", "topics", len(names), "err", err)
			}
			b.streams.forget(names)
			continue
		}
		await(ctx, b.streams.idle, next)
	}
	if !b.streams.wasUsed() {
		return
	}
	if err := b.store.unsubscribe(context.WithoutCancel(ctx), nil); err != nil {
		b.config.Logger.WarnContext(ctx, "backplane interest not deleted", "err", err)
	}
}

// await waits for d, or for a signal; negative: for that only.
func await(ctx context.Context, raised signal, d time.Duration) {
	var due <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-raised:
	case <-ctx.Done():
	}
}
