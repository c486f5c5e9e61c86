package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/berth"
)

// Config says how to reach the database and how long its windows are.
type Config struct {
	// URL is for queries. It may point at a pooler in transaction mode.
	URL string
	// DirectURL is for presence and other session locks, and must not point at a pooler. Empty: URL.
	DirectURL string
	// Name is shown as application_name in pg_stat_activity. Empty: "berth".
	Name string
	// PoolSize is the most connections to URL. Zero: 10. The reaper's lock takes one more while it is held.
	PoolSize int
	// RehearseAfter has half of the pool stay connected, and each connection run once what starts and rejoins run, one after
	// another, before somebody waits for it. They begin so long after Open. Zero: never.
	RehearseAfter time.Duration
	// DefaultRegion is where a start goes that names no region and whose tenant has none. Empty: anywhere.
	DefaultRegion string
	// ConnectWindow is how long a placement waits for its first socket. Zero: berth.ConnectWindow.
	ConnectWindow time.Duration
	// RejoinWindow is how long a session that lost its worker waits for a peer. Zero: one minute.
	RejoinWindow time.Duration
	// SlowStart is how long a worker takes to open all its slots to the first choice. Zero: it does so at once.
	SlowStart time.Duration
	// Keepalive bounds how long Postgres believes in the presence of a host that vanished.
	Keepalive Keepalive
}

// Keepalive is set on the server's side of a presence connection (tcp_keepalives_*, tcp_user_timeout).
type Keepalive struct {
	Idle        time.Duration // zero: 3 s
	Interval    time.Duration // zero: 2 s
	Count       int           // zero: 3
	UserTimeout time.Duration // zero: 6 s
}

func (c Config) withDefaults() Config {
	c.DirectURL = cmp.Or(c.DirectURL, c.URL)
	c.Name = cmp.Or(c.Name, "berth")
	c.PoolSize = cmp.Or(c.PoolSize, 10)
	c.ConnectWindow = cmp.Or(c.ConnectWindow, berth.ConnectWindow)
	c.RejoinWindow = cmp.Or(c.RejoinWindow, time.Minute)
	c.Keepalive.Idle = cmp.Or(c.Keepalive.Idle, 3*time.Second)
	c.Keepalive.Interval = cmp.Or(c.Keepalive.Interval, 2*time.Second)
	c.Keepalive.Count = cmp.Or(c.Keepalive.Count, 3)
	c.Keepalive.UserTimeout = cmp.Or(c.Keepalive.UserTimeout, 6*time.Second)
	return c
}

// Store is Berth's database. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	queries queries
	config  Config

	locks  *pgxpool.Pool // one connection, for the reaper's lock
	acting sync.Mutex    // held while this store has that lock

	claims      *batcher[claimRequest, claimed]
	releases    *batcher[releaseRequest, released]
	connects    *batcher[berth.Connect, berth.Connected]
	disconnects *batcher[berth.Disconnect, struct{}]
	others      *batcher[otherRequest, []berth.Peer]

	queue      *queue
	turnover   *turnover
	rehearsal  *rehearsal // nil: new connections plan what they run when they run it
	inFlight   *inFlight
	replacedTo atomic.Int64              // key behind which ReplaceLost goes on
	unsure     sync.Map                  // *pgconn.PgConn whose last commit may not have reached the standby
	full       atomic.Pointer[time.Time] // when a write last found no room; nil: the last one did
}

// Open makes a store. It does not connect: a database that is away is an error of the first call, not of start-up.
func Open(ctx context.Context, config Config) (*Store, error) {
	config = config.withDefaults()
	statements, err := loadQueries()
	if err != nil {
		return nil, err
	}
	settings, err := pgxpool.ParseConfig(config.URL)
	if err != nil {
		// The error of pgx may quote the password.
		return nil, errors.New("parse database url: it must look like postgres://user:password@host:5432/name")
	}
	settings.MaxConns = int32(min(config.PoolSize, 1000))
	settings.ConnConfig.ConnectTimeout = cmp.Or(settings.ConnConfig.ConnectTimeout, 5*time.Second)
	settings.ConnConfig.RuntimeParams["application_name"] = config.Name
	if config.DirectURL != config.URL {
		// Behind a pooler in transaction mode, a prepared statement may be another connection's.
		settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	store := &Store{queries: statements, config: config, inFlight: &inFlight{keys: map[[2]string]bool{}}}
	store.claims = newBatcher(store.claimBatch, store.abandonClaims)
	store.releases = newBatcher(store.releaseBatch, nil)
	store.connects = newBatcher(store.connectBatch, nil)
	store.disconnects = newBatcher(store.disconnectBatch, nil)
	store.others = newBatcher(store.othersBatch, nil)
	store.queue = &queue{store: store, waiting: map[int64]chan waiterRow{}}
	store.turnover = &turnover{store: store, lines: map[string]imaginary{}}
	settings.ConnConfig.OnNotice = store.notice
	locks := settings.Copy()
	locks.MaxConns, locks.MinConns, locks.MinIdleConns = 1, 0, 0
	if config.RehearseAfter > 0 && config.DirectURL == config.URL { // connections of a pooler are others' as well
		store.rehearsal = &rehearsal{store: store}
		store.rehearsal.prepare(settings)
	}
	if store.pool, err = pgxpool.NewWithConfig(ctx, settings); err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	if store.locks, err = pgxpool.NewWithConfig(ctx, locks); err != nil {
		store.pool.Close()
		return nil, fmt.Errorf("open pool of the reaper's lock: %w", err)
	}
	if store.rehearsal != nil {
		store.rehearsal.start(ctx, config.RehearseAfter) // until Close
	}
	return store, nil
}

// Close waits for running calls and closes every connection.
func (s *Store) Close() {
	if s.rehearsal != nil {
		s.rehearsal.close()
	}
	s.queue.close()
	s.claims.close()
	s.connects.close()
	s.disconnects.close()
	s.others.close()
	s.releases.close() // last: an abandoned claim is released
	s.pool.Close()
	s.locks.Close()
}

// Pool is the pool behind the store, for River.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// fullFor is how long a write that found no room says that the database takes no writes, unless another finds some.
const fullFor = 10 * time.Second

// Ping asks the database for one row, and fails also while it lately had no room for what was written.
func (s *Store) Ping(ctx context.Context) error {
	if full := s.full.Load(); full != nil && time.Since(*full) < fullFor {
		return fmt.Errorf("%w: the database has no room to write", berth.ErrUnavailable)
	}
	return fault(s.pool.QueryRow(ctx, "select 1").Scan(new(int)))
}

// Clock is the database's.
func (s *Store) Clock(ctx context.Context) (now time.Time, err error) {
	err = s.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&now)
	return now, fault(err)
}

// written notes whether a write found room.
func (s *Store) written(err error) {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pgErr.Code == "53100": // disk_full
		s.full.Store(new(time.Now()))
	case err == nil && s.full.Load() != nil:
		s.full.Store(nil)
	}
}

// collect runs a named query and reads its rows into structs by column name.
func collect[Row any](ctx context.Context, s *Store, name string, args ...any) ([]Row, error) {
	rows, err := s.pool.Query(ctx, s.queries[name], args...)
	if err != nil {
		return nil, named(name, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[Row])
	return found, named(name, err)
}

// notice remembers the connection on which a commit was answered although the standby did not confirm it. Postgres
// reports success then, with a warning: the row may be gone after a failover, so nobody may be told of it.
func (s *Store) notice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Code == "01000" && strings.Contains(n.Message, "synchronous replication") {
		s.unsure.Store(conn, true)
	}
}

// write is collect for statements whose rows are told to somebody: a commit that may be undone is an error that wraps
// berth.ErrUnavailable.
func write[Row any](ctx context.Context, s *Store, name string, args ...any) ([]Row, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, named(name, err)
	}
	defer conn.Release()
	s.unsure.Delete(conn.Conn().PgConn()) // of a statement before this one
	rows, err := conn.Query(ctx, s.queries[name], args...)
	if err != nil {
		return nil, named(name, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
	s.written(err)
	if _, unsure := s.unsure.LoadAndDelete(conn.Conn().PgConn()); unsure && err == nil {
		err = fmt.Errorf("%w: the standby has not confirmed the commit", berth.ErrUnavailable)
	}
	return found, named(name, err)
}

// value runs a named query that answers one row of one column.
func value[T any](ctx context.Context, s *Store, name string, args ...any) (T, error) {
	var v T
	err := s.pool.QueryRow(ctx, s.queries[name], args...).Scan(&v)
	return v, named(name, err)
}

// exec runs a named query whose rows nobody wants.
func (s *Store) exec(ctx context.Context, name string, args ...any) error {
	_, err := s.pool.Exec(ctx, s.queries[name], args...)
	return named(name, err)
}

// named says which query failed, and how the caller should take it.
func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, fault(err))
}

// fault marks errors after which the outcome is unknown with berth.ErrUnavailable. A caller's own cancellation stays
// what it is.
func fault(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		if transient(pgErr.Code) {
			return fmt.Errorf("%w: %w", berth.ErrUnavailable, err)
		}
		return err
	}
	if pgconn.SafeToRetry(err) || disconnected(err) {
		return fmt.Errorf("%w: %w", berth.ErrUnavailable, err)
	}
	return err
}

// rolledBack says whether a statement certainly did nothing, and may be repeated at once: it lost to another.
func rolledBack(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

// disconnected says whether the database was not reached, or its answer was lost.
func disconnected(err error) bool {
	var netErr net.Error
	var connectErr *pgconn.ConnectError
	return errors.As(err, &netErr) || errors.As(err, &connectErr) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed)
}

// transient says whether an SQLSTATE means that the database could not, rather than would not: connection exceptions,
// a transaction that lost to another, too few resources, an operator's intervention, a system error; a write that a
// standby got during a failover (25006), a lock that was not to be had in time (55P03), a function or table that a
// migration is about to make again (42883, 42P01, 3F000).
func transient(code string) bool {
	class := code[:min(2, len(code))]
	return slices.Contains([]string{"08", "40", "53", "57", "58"}, class) || code == "25006" || code == "55P03" ||
		code == "42883" || code == "42P01" || code == "3F000"
}
