package backplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The statements. What they call is in migrations/code/backplane.sql.
const (
	publishStatement     = `select epochs, offsets, processes from berth.publish($1::text[], $2::text[])`
	subscribeStatement   = `select topic, epoch::text, last from berth.subscribe_topics($1::bigint, $2::text[], $3::int[])`
	unsubscribeStatement = `select berth.unsubscribe_topics($1::bigint, $2::text[])`
	countStatement       = `select berth.count_members($1::bigint, $2::text[], $3::int[])`
	listeningStatement   = `select berth.listening_processes()`
	presenceStatement    = `select coalesce(epoch, ''), coalesce(last, 0), members, processes
		from berth.topic_presence($1::text, $2::bigint[])`
	healthStatement = `select usage, blocked from berth.listener_health($1::bigint)`
	aheadStatement  = `select topic, epoch, last, interested, miscounted
		from berth.topics_ahead($1::bigint, $2::text[], $3::text[], $4::bigint[], $5::int[])`
	identityStatement = `select berth.backplane_identity()`
	meetStatement     = `select berth.meet_processes($1::bigint, $2::text[], make_interval(secs => $3::float8))`
	partStatement     = `select berth.part_process($1::bigint)`
	readStatement     = `select ord, epoch::text, first, last, "offset", data
		from berth.read_topics($1::text[], $2::bigint[], $3::int, $4::bigint)`
	purgeStatement = `select berth.purge_topics(make_interval(secs => $1::float8), make_interval(secs => $2::float8), $3::int)`
)

const (
	// statementTimeout bounds one statement. Its outcome is unknown afterwards.
	statementTimeout = 5 * time.Second
	// pageMessages and pageBytes bound what is read of one topic at once.
	pageMessages = 64
	pageBytes    = 1 << 20
	// readBytes bounds what is read by one statement, unless it is for so many topics that each would have less than one
	// message.
	readBytes = 8 << 20
)

// store is the backplane's part of the database, through the pool.
type store struct {
	pool    *pgxpool.Pool
	process int64
}

func (s *store) publish(ctx context.Context, messages []Outgoing) ([]Published, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	topics, data := make([]string, len(messages)), make([]string, len(messages))
	for i, m := range messages {
		topics[i], data[i] = m.Topic, string(m.Data)
	}
	var epochs []string
	var offsets []int64
	var processes []int
	if err := s.pool.QueryRow(ctx, publishStatement, topics, data).Scan(&epochs, &offsets, &processes); err != nil {
		return nil, fault("publish", err)
	}
	published := make([]Published, len(messages))
	for i := range published {
		published[i] = Published{Position: Position{Epoch: epochs[i], Offset: offsets[i]}, Processes: processes[i]}
	}
	return published, nil
}

// subscribe makes the process interested in topics, with as many members, and returns their positions.
func (s *store) subscribe(ctx context.Context, topics []string, members []int) (map[string]Position, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, subscribeStatement, s.process, topics, members)
	if err != nil {
		return nil, fault("subscribe to topics", err)
	}
	positions := make(map[string]Position, len(topics))
	var topic string
	var at Position
	_, err = pgx.ForEachRow(rows, []any{&topic, &at.Epoch, &at.Offset}, func() error {
		positions[topic] = at
		return nil
	})
	return positions, fault("subscribe to topics", err)
}

// unsubscribe ends the process's interest in topics; nil: in everything.
func (s *store) unsubscribe(ctx context.Context, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, unsubscribeStatement, s.process, topics)
	return fault("unsubscribe from topics", err)
}

// count says how many members of topics the process has.
func (s *store) count(ctx context.Context, topics []string, members []int) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, countStatement, s.process, topics, members)
	return fault("count members", err)
}

// listening returns the processes that listen.
func (s *store) listening(ctx context.Context) (processes []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, listeningStatement).Scan(&processes)
	return processes, fault("ask who listens", err)
}

// presence counts a topic's subscribers in processes.
func (s *store) presence(ctx context.Context, topic string, processes []int64) (p Presence, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, presenceStatement, topic, processes).
		Scan(&p.Position.Epoch, &p.Position.Offset, &p.Members, &p.Processes)
	return p, fault("ask for presence", err)
}

// health is what the database says of the process's listener.
type health struct {
	usage   float64 // of the queue of notifications, from 0 to 1
	blocked bool    // nobody reads what the listener's backend writes
}

func (s *store) health(ctx context.Context) (h health, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, healthStatement, s.process).Scan(&h.usage, &h.blocked)
	return h, fault("look at the listener", err)
}

// ahead returns those of topics that are not as the process claims, or that it is not interested in any more.
func (s *store) ahead(ctx context.Context, c claims) ([]head, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, aheadStatement, s.process, c.topics, c.epochs, c.offsets, c.members)
	if err != nil {
		return nil, fault("compare topics", err)
	}
	heads, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h head, err error) {
		err = row.Scan(&h.topic, &h.at.Epoch, &h.at.Offset, &h.interested, &h.miscounted)
		return h, err
	})
	return heads, fault("compare topics", err)
}

// identity names the database.
func (s *store) identity(ctx context.Context) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, identityStatement).Scan(&name)
	return name, fault("identify the database", err)
}

// meet notes which databases the process has, nil where one is not known, and returns how many other processes that were here
// within life have other ones.
func (s *store) meet(ctx context.Context, databases []*string, life time.Duration) (others int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, meetStatement, s.process, databases, life.Seconds()).Scan(&others)
	return others, fault("meet other processes", err)
}

// part takes back what meet noted.
func (s *store) part(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	_, err := s.pool.Exec(ctx, partStatement, s.process)
	return fault("part from other processes", err)
}

// read returns a page of each topic, in their order: what it keeps after an offset. The page of one that is not there has no
// epoch.
func (s *store) read(ctx context.Context, topics []string, after []int64) ([]page, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	bytes := max(MaxData, min(pageBytes, readBytes/len(topics)))
	rows, err := s.pool.Query(ctx, readStatement, topics, after, pageMessages, bytes)
	if err != nil {
		return nil, fault("read topics", err)
	}
	pages := make([]page, len(topics))
	var epoch string
	var ord, first, last int64
	var offset *int64
	var data *string
	_, err = pgx.ForEachRow(rows, []any{&ord, &epoch, &first, &last, &offset, &data}, func() error {
		p := &pages[ord-1]
		p.epoch, p.first, p.last = epoch, first, last
		if offset != nil && data != nil {
			p.messages = append(p.messages, Message{
				Topic: topics[ord-1], Position: Position{Epoch: epoch, Offset: *offset}, Data: []byte(*data),
			})
		}
		return nil
	})
	return pages, fault("read topics", err)
}

// purge sees to up to limit topics, and returns how many it found.
func (s *store) purge(ctx context.Context, age, idle time.Duration, limit int) (found int, err error) {
	err = s.pool.QueryRow(ctx, purgeStatement, age.Seconds(), idle.Seconds(), limit).Scan(&found)
	return found, fault("purge topics", err)
}

// fault says what failed, and marks all errors with ErrUnavailable but those that are about the data, and a caller's own
// cancellation.
func fault(what string, err error) error {
	if err == nil {
		return nil
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if errors.Is(err, context.Canceled) || ok && len(pgErr.Code) == 5 && (pgErr.Code[:2] == "22" || pgErr.Code[:2] == "23") {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
}
