package postgres

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
)

// postPatience is how many looks of a sentinel may fail to come before Postgres ends its connection, but leastPatience
// at least: a busy machine may be that late.
const (
	postPatience  = 5
	leastPatience = 750 * time.Millisecond
)

// post is a sentinel's connection. Its lock and its looks are on the same one, so that a sentinel that does not look has
// no lock: Postgres ends a session that is idle for too long, which needs no rights over others' backends.
type post struct {
	conn  *pgx.Conn
	query string
	args  []any
}

// Post opens a connection for a sentinel that will look as the numbers of detection say.
func (s *Store) Post(ctx context.Context, detection berth.Detection) (berth.Post, error) {
	settings, err := pgx.ParseConfig(s.config.DirectURL)
	if err != nil {
		return nil, fmt.Errorf("parse direct database url: it must look like postgres://user:password@host:5432/name")
	}
	patience := max(leastPatience, postPatience*detection.Watch).Milliseconds()
	maps.Copy(settings.RuntimeParams, s.config.Keepalive.settings())
	maps.Copy(settings.RuntimeParams, map[string]string{
		"application_name":     "berth sentinel",
		"idle_session_timeout": strconv.FormatInt(patience, 10),
		"statement_timeout":    strconv.FormatInt(patience, 10),
		// That somebody looked is worth no wait for a disk or a standby.
		"synchronous_commit": "off",
	})
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return nil, fault(err)
	}
	if err := direct(ctx, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // the first error says more
		return nil, fault(err)
	}
	return &post{conn: conn, query: s.queries["sentinel_look"], args: watching(detection)}, nil
}

// watching says what the looks of a sentinel are about: what the detector of the reaper goes by. A sweep asks workers
// itself, so that here only the ticks are watched, and nothing is recorded as a look.
func watching(d berth.Detection) []any {
	var record *time.Duration
	if d.Detector != berth.DetectSweep {
		record = new(d.BlindAfter / 10)
	}
	return []any{d.Detector == berth.DetectPresence, d.Detector != berth.DetectSweep, d.ConfirmDelay, d.BlindAfter, record}
}

// Take asks for the lock of the sentinels.
func (p *post) Take(ctx context.Context) (taken bool, err error) {
	err = p.conn.QueryRow(ctx, "select pg_try_advisory_lock($1::int, $2::int)", reaperClass, sentinelNumber).Scan(&taken)
	return taken, named("sentinel_take", err)
}

// Watch looks at all workers.
func (p *post) Watch(ctx context.Context) (berth.Outlook, error) {
	type outlookRow struct {
		At               time.Time
		Missing          []int32
		NewGap           bool
		Ripe             bool
		Blind            bool
		SinceTickSeconds *float64
	}
	rows, err := p.conn.Query(ctx, p.query, p.args...)
	if err != nil {
		return berth.Outlook{}, named("sentinel_look", err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[outlookRow])
	if err != nil {
		return berth.Outlook{}, named("sentinel_look", err)
	}
	missing := make([]berth.Instance, len(row.Missing))
	for i, instance := range row.Missing {
		missing[i] = berth.Instance(instance)
	}
	return berth.Outlook{
		At: row.At, Missing: missing, NewGap: row.NewGap, Ripe: row.Ripe, Blind: row.Blind,
		SinceTick: seconds(deref(row.SinceTickSeconds)),
	}, nil
}

// Close ends the connection.
func (p *post) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	return p.conn.Close(ctx)
}
