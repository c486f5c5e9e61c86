package front

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// naivePool is how many claims may be in flight. Fewer than the connections of a measurement made it slower.
const naivePool = 64

// Schema lists the statements that make the tables of pg_naive.
func Schema() []string {
	return []string{
		`create table slots (
			server text not null, ordinal int not null, region text not null, load float8 not null, session text,
			primary key (server, ordinal))`,
		`create table sessions (
			id text primary key, server text not null, ordinal int not null, created_at timestamptz not null default now(),
			foreign key (server, ordinal) references slots)`,
		`create index slots_free on slots (region, load) where session is null`,
	}
}

// Fill is the statement that makes $1 servers of $2 slots in region $3.
const Fill = `insert into slots (server, ordinal, region, load)
	select 'w-' || server, ordinal, $3::text, ordinal::float8 / $2::int
	  from generate_series(1, $1::int) server, generate_series(1, $2::int) ordinal`

// naive claims one slot per transaction.
type naive struct {
	pool *pgxpool.Pool
}

func newNaive(ctx context.Context, cfg Config) (*naive, error) {
	settings, err := pgxpool.ParseConfig(cfg.StoreURL)
	if err != nil {
		return nil, errors.New("parse store url: it must look like postgres://user:password@host:5432/name")
	}
	settings.MaxConns = naivePool
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	return &naive{pool: pool}, nil
}

func (n *naive) close() { n.pool.Close() }

func (n *naive) assign(ctx context.Context, sessionID, region string) (string, error) {
	var server string
	err := pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		var ordinal int
		err := tx.QueryRow(ctx, `select server, ordinal from slots where region = $1 and session is null
			order by load limit 1 for update skip locked`, region).Scan(&server, &ordinal)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w in %s", errFull, region)
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `update slots set session = $3 where server = $1 and ordinal = $2`,
			server, ordinal, sessionID); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into sessions (id, server, ordinal) values ($1, $2, $3)`, sessionID, server, ordinal)
		return err
	})
	return server, err
}
