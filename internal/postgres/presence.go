package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
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
	maps.Copy(settings.RuntimeParams, s.config.Keepalive.settings())
	settings.RuntimeParams["idle_session_timeout"] = "0"
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return nil, fault(err)
	}
	if err := takePresence(ctx, conn, instance); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // the first error says more
		return nil, fault(err)
	}
	return newPresence(ctx, conn), nil
}

// errPooled says that the lock would belong to a pooler's connection, and outlive this process.
var errPooled = errors.New("the direct database url leads to a pooler, whose connection would keep locks " +
	"when this process dies; let BERTH_DATABASE_DIRECT_URL name Postgres itself")

// direct looks who is on the other side: a pooler names a backend of its own making when a client connects, and not the
// one that runs its statements.
func direct(ctx context.Context, conn *pgx.Conn) error {
	var backend uint32
	if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&backend); err != nil {
		return err
	}
	if backend != conn.PgConn().PID() {
		return errPooled
	}
	return nil
}

func takePresence(ctx context.Context, conn *pgx.Conn, instance berth.Instance) error {
	if err := direct(ctx, conn); err != nil {
		return err
	}
	var taken bool
	err := conn.QueryRow(ctx, "select pg_try_advisory_lock($1::int, $2::int)", presenceClass, int32(instance)).Scan(&taken)
	if err == nil && !taken {
		err = fmt.Errorf("presence of instance %d is held by another connection: %w", instance, berth.ErrUnavailable)
	}
	return err
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

// releaseWait bounds how long the server may take to confirm that it freed a presence lock.
const releaseWait = 2 * time.Second

// presence watches its connection from one goroutine, which Close waits for.
type presence struct {
	conn   *pgx.Conn
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of the release that Close asked for; written before done is closed
}

func newPresence(ctx context.Context, conn *pgx.Conn) *presence {
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &presence{conn: conn, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		// Nothing is ever notified on this connection: it returns when the connection ends or Close cancels.
		_, _ = conn.WaitForNotification(watch)
		p.release(context.WithoutCancel(ctx))
	}()
	return p
}

// release frees the lock by a statement, since the server ends a closed connection some time later. A connection that
// ended by itself took its lock along.
func (p *presence) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	if !p.conn.IsClosed() {
		if _, err := p.conn.Exec(ctx, "select pg_advisory_unlock_all()"); err != nil {
			p.err = fmt.Errorf("free presence lock: %w", fault(err))
		}
	}
	_ = p.conn.Close(ctx) // the lock is free, or p.err says why it may not be yet
}

// Done is closed when the connection ended, and the lock with it.
func (p *presence) Done() <-chan struct{} { return p.done }

// Close gives the lock up and returns once the server has freed it. It is idempotent.
func (p *presence) Close(ctx context.Context) error {
	p.cancel()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("close presence connection: %w", ctx.Err())
	}
}
