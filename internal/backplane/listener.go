package backplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// openTimeout bounds the opening of the listener's connection, with the proof that it hears.
	openTimeout = 10 * time.Second
	// farewell bounds its orderly end.
	farewell = time.Second
	// probeMark begins a probe; no notification of messages does.
	probeMark = "\n"
)

// errBadURL stands for the error of pgx, which may quote the password.
var errBadURL = errors.New("parse direct database url: it must look like postgres://user:password@host:5432/name")

// errSilent says that the connection did not bring a notification that was sent to it.
var errSilent = errors.New("listener is silent: its probe did not come back")

// Settings of the server's side of the connection. A paused process with traffic is cut after six seconds, before what
// it does not read holds up the queue that all listeners of the server share.
const listenerSettings = `select set_config('idle_session_timeout', '0', false), set_config('tcp_keepalives_idle', '3', false),
	set_config('tcp_keepalives_interval', '2', false), set_config('tcp_keepalives_count', '3', false),
	set_config('tcp_user_timeout', '6000', false)`

// listener has the connection on which the process is notified, while there is something to hear.
type listener struct {
	bus      *Bus
	config   Config
	log      *slog.Logger
	settings *pgx.ConnConfig
	probes   atomic.Int64 // sent so far

	mu      sync.Mutex              // guards the rest
	dropped context.CancelCauseFunc // of the session that hears, if there is one
}

func newListener(b *Bus, config Config) (*listener, error) {
	settings, err := pgx.ParseConfig(config.DirectURL)
	if err != nil {
		return nil, errBadURL
	}
	// berth.listen_for knows older connections of the process by this name.
	settings.RuntimeParams["application_name"] = "berth backplane " + strconv.FormatInt(config.Process, 16)
	// Behind a pooler, a prepared statement may be another connection's; it is to be found out, and not to fail.
	settings.DefaultQueryExecMode = pgx.QueryExecModeExec
	return &listener{bus: b, config: config, log: config.Logger, settings: settings}, nil
}

// run listens while there is something to listen for, until ctx ends.
func (l *listener) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		if !l.bus.streams.wanted() {
			select {
			case <-l.bus.streams.wants:
			case <-ctx.Done():
			}
			continue
		}
		heard, err := l.session(ctx)
		l.bus.streams.deafen()
		if heard {
			failures = 0
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		l.log.WarnContext(ctx, "backplane listener failed", "heard", heard, "err", err)
		l.bus.streams.fail(err)
		pause(ctx, failures)
		failures++
	}
}

// session opens a connection and listens until it fails, or until there is nothing to listen for. heard says that it was
// proven to hear.
func (l *listener) session(ctx context.Context) (heard bool, err error) {
	open, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := l.connect(open)
	if err != nil {
		return false, err
	}
	defer func() { l.end(context.WithoutCancel(ctx), conn, err) }()
	if err := l.prove(open, conn); err != nil {
		return false, err
	}
	l.log.InfoContext(ctx, "backplane listener connected", "backend", conn.PgConn().PID())
	l.bus.metrics.resyncs.WithLabelValues(causeConnected).Inc()
	ctx, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	l.hearing(drop)
	defer l.hearing(nil)
	l.bus.streams.listen()
	if err := l.drain(ctx, conn); err != nil {
		return true, err
	}
	return true, l.reason(ctx)
}

// hearing notes how to end the session that hears, or that there is none.
func (l *listener) hearing(drop context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped = drop
	l.bus.metrics.connected.Set(0)
	if drop != nil {
		l.bus.metrics.connected.Set(1)
	}
}

// drop ends the session that hears, if there is one, as if its connection had failed.
func (l *listener) drop(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped != nil {
		l.dropped(cause)
	}
}

// reason is why a session was dropped; nil if it was not.
func (l *listener) reason(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errBlocked) || errors.Is(cause, errQueue) {
		return cause
	}
	return nil
}

// connect opens a connection. Once open it never dials again: pgx would do so to cancel a statement on a connection that
// failed, and wait for long on a network that swallows packets.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	settings := l.settings.Copy()
	var opened atomic.Bool
	dial := settings.DialFunc
	settings.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if opened.Load() {
			return nil, net.ErrClosed
		}
		return dial(ctx, network, address)
	}
	conn, err := pgx.ConnectConfig(ctx, settings)
	opened.Store(true)
	return conn, fault("connect listener", err)
}

// prove makes the connection the process's listener, and returns once it has heard its own notification.
func (l *listener) prove(ctx context.Context, conn *pgx.Conn) error {
	if err := l.greet(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, listenerSettings); err != nil {
		return fault("set up listener", err)
	}
	if _, err := conn.Exec(ctx, "select berth.listen_for($1::bigint)", l.config.Process); err != nil {
		return fault("listen", err)
	}
	return l.hearItself(ctx, conn)
}

// greet listens on the process's channel, once it is sure that it talks to a backend of its own: behind a pooler in
// transaction mode, LISTEN succeeds and nothing is ever heard. A pooler names a backend of its own making when a client
// connects, and not the one that runs its statements.
func (l *listener) greet(ctx context.Context, conn *pgx.Conn) error {
	var backend uint32
	if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&backend); err != nil {
		return fault("ask listener's backend", err)
	}
	if backend != conn.PgConn().PID() {
		return ErrPooled
	}
	name := pgx.Identifier{channel(l.config.Process)}.Sanitize()
	_, err := conn.Exec(ctx, "listen "+name)
	return fault("listen", err)
}

// hearItself returns once the connection has brought a notification that was sent to it.
func (l *listener) hearItself(ctx context.Context, conn *pgx.Conn) error {
	sent, _, err := l.probe(ctx, conn, true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.ProbeTimeout)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err != nil && pgconn.Timeout(err):
			return fmt.Errorf("%w (its first notification did not come)", ErrPooled)
		case err != nil:
			return fault("hear own notification", err)
		case n.Payload == sent:
			return nil
		}
	}
}

// check proves that a listener would hear.
func (l *listener) check(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { l.end(context.WithoutCancel(ctx), conn, err) }()
	if err := l.greet(ctx, conn); err != nil {
		return err
	}
	return l.hearItself(ctx, conn)
}

// probe has the server notify this connection of a text that is new, if loud, and says whether the process's interest is
// still there.
func (l *listener) probe(ctx context.Context, conn *pgx.Conn, loud bool) (sent string, interested bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.config.ProbeTimeout)
	defer cancel()
	var text *string
	if loud {
		sent = probeMark + strconv.FormatInt(l.probes.Add(1), 10)
		text = &sent
	}
	err = conn.QueryRow(ctx, "select berth.probe_listener($1::bigint, $2::text)", l.config.Process, text).Scan(&interested)
	return sent, interested, fault("probe listener", err)
}

// end closes the connection: in order if it worked to the end, otherwise without another packet.
func (l *listener) end(ctx context.Context, conn *pgx.Conn, failure error) {
	if failure != nil {
		_ = conn.PgConn().Conn().Close() // it failed already
	}
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	_ = conn.Close(ctx) // nobody waits for what comes on it
	_ = conn.PgConn().Conn().Close()
	<-conn.PgConn().CleanupDone()
}

// drain moves notifications into memory until the connection fails, ctx ends, or nobody wants them. It does nothing else, as what is
// not read holds up the server's queue, but for a probe now and then. That is silent while there are messages to prove that
// the connection works, for the sake of the others that listen.
func (l *listener) drain(ctx context.Context, conn *pgx.Conn) error {
	for {
		heard, _, err := l.hear(ctx, conn, l.config.ProbeInterval, "")
		if err != nil || ctx.Err() != nil {
			return err
		}
		if l.bus.streams.unwanted() {
			l.log.InfoContext(ctx, "backplane listener not needed")
			return nil
		}
		if err := l.examine(ctx, conn, heard == 0); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// examine asks the connection for a sign of life, and whether the process's interest is still there. A loud one must be
// heard.
func (l *listener) examine(ctx context.Context, conn *pgx.Conn, loud bool) error {
	sent, interested, err := l.probe(ctx, conn, loud)
	if err != nil {
		return err
	}
	if !interested {
		if err := l.renew(ctx, conn); err != nil {
			return err
		}
	}
	if !loud {
		return nil
	}
	if _, found, err := l.hear(ctx, conn, l.config.ProbeTimeout, sent); err != nil || found {
		return err
	}
	return errSilent
}

// renew makes the interest of the process anew, which somebody deleted.
func (l *listener) renew(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.ProbeTimeout)
	defer cancel()
	if _, err := conn.Exec(ctx, "select berth.listen_for($1::bigint)", l.config.Process); err != nil {
		return fault("listen", err)
	}
	l.log.WarnContext(ctx, "backplane interest was deleted, and is made anew")
	l.bus.resync(causeInterest, true)
	return nil
}

// hear puts notifications into the inbox for d, and returns how many. It ends as soon as the text comes that is awaited.
func (l *listener) hear(ctx context.Context, conn *pgx.Conn, d time.Duration, awaited string) (heard int, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		timeIsUp := ctx.Err() != nil && !conn.IsClosed()
		switch {
		case timeIsUp && n == nil:
			return heard, false, nil
		case err != nil:
			return heard, false, fault("hear", err)
		case awaited != "" && n.Payload == awaited:
			return heard, true, nil
		case strings.HasPrefix(n.Payload, probeMark): // late, and answered for by another
			continue
		}
		heard++
		select {
		case l.bus.inbox <- n.Payload:
		default:
			l.bus.overflow.Store(true)
		}
	}
}
