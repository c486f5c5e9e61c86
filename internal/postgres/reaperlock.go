package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
)

// Advisory locks of those of whom there is one at a time: class "berr". The reaper's is number 1, the sentinel's 2.
const (
	reaperClass    = 0x62657272
	reaperNumber   = 1
	sentinelNumber = 2
)

const (
	// lockPing is how often a reaper says on the connection of its lock that it is awake.
	lockPing = 200 * time.Millisecond
	// lockPatience is how long Postgres waits for that before it ends the transaction, and the lock with it: the process
	// is paused, or cut off.
	lockPatience = 1200 * time.Millisecond
	// lockAnswer is how long the reaper waits for an answer before it gives its lock up for lost. It is shorter, so that a
	// reaper that is cut off stops before another begins.
	lockAnswer = 900 * time.Millisecond
)

// WithReaperLock runs act while this store is the one actor, and reports false when another is, here or elsewhere. The
// lock lives as long as a transaction that carries nothing else, so it ends with the process, and soon after the process
// is paused. It has a connection of its own: act asks the pool for others. The context of act ends when the lock is lost,
// with a cause that wraps berth.ErrStale.
func (s *Store) WithReaperLock(ctx context.Context, act func(context.Context) error) (ran bool, err error) {
	if !s.acting.TryLock() {
		return false, nil
	}
	defer s.acting.Unlock()
	err = pgx.BeginFunc(ctx, s.locks, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock($1::int, $2::int)
			from set_config('idle_in_transaction_session_timeout', $3::text, true)`,
			reaperClass, reaperNumber, fmt.Sprint(lockPatience.Milliseconds())).Scan(&ran)
		if err != nil || !ran {
			return err
		}
		return awake(ctx, tx, act)
	})
	if err != nil {
		err = fmt.Errorf("hold reaper lock: %w", fault(err))
	}
	return ran, err
}

// awake runs act, and pings the transaction as long as it runs.
func awake(ctx context.Context, tx pgx.Tx, act func(context.Context) error) error {
	acting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	var pings sync.WaitGroup
	pings.Go(func() {
		ticker := time.NewTicker(lockPing)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			if err := ping(ctx, tx); err != nil {
				cancel(fmt.Errorf("%w: the reaper's lock is lost: %w", berth.ErrStale, err))
				return
			}
		}
	})
	err := act(acting)
	close(over)
	pings.Wait()
	if lost := context.Cause(acting); lost != nil && ctx.Err() == nil {
		return lost
	}
	return err
}

// ping is not cut short by the end of ctx, which would end the connection.
func ping(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockAnswer)
	defer cancel()
	_, err := tx.Exec(ctx, "select 1")
	return err
}
