package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
)

// presenceClass is the first half of a presence lock; the instance is the second. SQL calls it 1650815592.
const presenceClass = 1650815592

// Presence opens a connection that holds the instance's presence lock and does nothing else. Postgres drops the lock
// milliseconds after this process dies, and keeps it while the process is merely paused.
func (s *Store) Presence(ctx context.Context, instance berth.Instance) (berth.Presence, error) {
	settings, err := pgx.ParseConfig(s.config.DirectURL)
	if err != nil {
		return nil, fmt.Errorf("parse direct database url: it must look like postgres://user:password@host:5432/name")
	}
	settings.RuntimeParams["application_name"] = "berth presence " + strconv.Itoa(int(instance))
	// A pooler refuses or forgets these; a lock that is not there at the end refuses it.
	for name, setting := range s.config.Keepalive.settings() {
		settings.RuntimeParams[name] = setting
	}
	settings.RuntimeParams["idle_session_timeout"] = "0"
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return nil, fault(err)
	}
	var taken bool
	err = conn.QueryRow(ctx, "select pg_try_advisory_lock($1::int, $2::int)", presenceClass, int32(instance)).Scan(&taken)
	if err == nil && !taken {
		err = fmt.Errorf("presence of instance %d is held by another connection: %w", instance, berth.ErrUnavailable)
	}
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // the first error says more
		return nil, fault(err)
	}
	return newPresence(ctx, conn), nil
}

func (k Keepalive) settings() map[string]string {
	seconds := func(d time.Duration) string { return strconv.Itoa(max(1, int(d.Round(time.Second).Seconds()))) }
	return map[string]string{
		"tcp_keepalives_idle":     seconds(k.Idle),
		"tcp_keepalives_interval": seconds(k.Interval),
		"tcp_keepalives_count":    strconv.Itoa(k.Count),
		"tcp_user_timeout":        strconv.FormatInt(k.UserTimeout.Milliseconds(), 10),
	}
}

// presence watches its connection from one goroutine, which Close waits for.
type presence struct {
	conn   *pgx.Conn
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

func newPresence(ctx context.Context, conn *pgx.Conn) *presence {
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &presence{conn: conn, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		// Nothing is ever notified on this connection: it returns when the connection ends or Close cancels.
		_, _ = conn.WaitForNotification(watch)
		_ = conn.Close(context.WithoutCancel(ctx))
	}()
	return p
}

// Done is closed when the connection ended, and the lock with it.
func (p *presence) Done() <-chan struct{} { return p.done }

// Close gives the lock up. It is idempotent.
func (p *presence) Close(ctx context.Context) error {
	p.once.Do(p.cancel)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close presence connection: %w", ctx.Err())
	}
}
