package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// The cases of Live.
const (
	caseEmpty = "empty"
	caseLive  = "live"
)

// Live measures Berth in a database that holds many live sessions next to an empty one.
func Live(ctx context.Context, cfg Config, sessions int) (*Contrast, error) {
	cfg = cfg.withDefaults()
	if room := cfg.Workers * cfg.Slots; sessions < 1 || sessions > room/2 {
		return nil, fmt.Errorf("live sessions must be 1 to half of the %d slots, so that the measurement fits too: "+
			"ask for fewer, or give workers more slots", room)
	}
	return withRig(ctx, cfg, func(r *rig) (*Contrast, error) {
		template, err := r.fill(ctx, sessions)
		if err != nil {
			return nil, fmt.Errorf("fill database: %w", err)
		}
		return r.contrast(ctx, caseLive, caseEmpty, func(ctx context.Context, name string) (measurement, error) {
			if name == caseLive {
				return r.measureOn(ctx, Berth, template, sessions)
			}
			return r.measureOn(ctx, Berth, berthTemplate, 0)
		})
	})
}

// activate connects what was placed.
const activate = "update berth.sessions set state = 'active', connect_by = null where state = 'assigned'"

// connectEvery is well within the time for which Berth waits for the peer of a placement.
const connectEvery = 5 * time.Second

// whileConnecting connects what act places, so that no session ends as a no-show before act is done.
func (r *rig) whileConnecting(ctx context.Context, database string, act func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		return act(ctx)
	})
	group.Go(func() error {
		return r.within(ctx, database, func(conn *pgx.Conn) error {
			for {
				select {
				case <-done:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(connectEvery):
				}
				if _, err := conn.Exec(ctx, activate); err != nil {
					return err
				}
			}
		})
	})
	return group.Wait()
}

// fill makes a database whose sessions Berth placed, and whose peers are all connected.
func (r *rig) fill(ctx context.Context, sessions int) (template string, err error) {
	s, err := r.raise(ctx, Berth, berthTemplate, 1)
	if err != nil {
		return "", err
	}
	template = s.database
	s.database = "" // it stays when the scene ends
	err = r.whileConnecting(ctx, template, func(ctx context.Context) error {
		return r.placeMany(ctx, s.servers[0].address, sessions)
	})
	err = errors.Join(err, s.close(ctx))
	if err != nil {
		return "", err
	}
	r.cfg.Logger.InfoContext(ctx, "sessions placed", "sessions", sessions)
	return template, r.within(ctx, template, func(conn *pgx.Conn) error {
		for _, statement := range []string{
			activate,
			"update berth.peers set connection_id = 'c-' || peer_id, connected_at = clock_timestamp()",
			"vacuum analyze",
		} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// placeMany places sessions over all connections.
func (r *rig) placeMany(ctx context.Context, address string, sessions int) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range r.cfg.Connections {
		share := sessions / r.cfg.Connections
		if i < sessions%r.cfg.Connections {
			share++
		}
		group.Go(func() error {
			p, err := dialPlacer(ctx, address, r.key(0), fmt.Sprintf("live-%d-", i), fillLimit)
			if err != nil {
				return err
			}
			defer func() { _ = p.client.Close() }() // its answers are all there
			for range share {
				if err := p.Call(ctx); err != nil || ctx.Err() != nil {
					return errors.Join(err, ctx.Err())
				}
			}
			return nil
		})
	}
	return group.Wait()
}
