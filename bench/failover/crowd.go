package failover

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// crowdDialers is how many calls are made at a time.
const crowdDialers = 32

// crowd kills a worker that has one peer of each of many calls, while another tenant starts sessions.
func (r *rig) crowd(ctx context.Context, detector string, tally *Collateral) (c Case, err error) {
	s, err := r.raise(ctx, tuning{detector: detector}, tally)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	victim := s.workers[0]
	if err := s.gather(ctx, victim, r.cfg.Crowd); err != nil {
		return c, fmt.Errorf("gather calls: %w", err)
	}
	claims := startClaims(ctx, s.client)
	sample, err := s.kill(ctx, []*member{victim}, claims.mark, func() error { return claims.stop() })
	if err != nil {
		return c, errors.Join(err, claims.stop())
	}
	c = newCase(PartLeaders, "crowd", detector, []Sample{sample})
	c.Claims = claims.result()
	return c, nil
}

// gather makes calls whose first peers are all on one worker, and whose other peers are elsewhere. The workers that
// should get none meanwhile are cordoned.
func (s *scene) gather(ctx context.Context, victim *member, n int) error {
	for range n {
		s.calls = append(s.calls, s.newCall())
	}
	for i := range 2 {
		if err := s.cordon(ctx, func(m *member) bool { return (m == victim) == (i == 1) }); err != nil {
			return err
		}
		err := s.each(ctx, func(ctx context.Context, c *call) error { return s.place(ctx, c, c.peers[i]) })
		if err != nil {
			return err
		}
	}
	if err := s.cordon(ctx, func(*member) bool { return false }); err != nil {
		return err
	}
	return s.each(ctx, func(ctx context.Context, c *call) error {
		if (c.peers[0].worker == victim) == (c.peers[1].worker == victim) {
			return fmt.Errorf("call %s is on %s and %s", c.id, c.peers[0].worker.id, c.peers[1].worker.id)
		}
		return c.establish(ctx)
	})
}

// each does something with all calls, some at a time.
func (s *scene) each(ctx context.Context, act func(context.Context, *call) error) error {
	group, acting := errgroup.WithContext(ctx)
	group.SetLimit(crowdDialers)
	for _, c := range s.calls {
		group.Go(func() error { return act(acting, c) })
	}
	return group.Wait()
}

// cordon lets some workers get nothing new, and all others everything.
func (s *scene) cordon(ctx context.Context, some func(*member) bool) error {
	for _, m := range s.workers {
		var reason *string
		if some(m) {
			reason = new("bench")
		}
		_, err := s.pool.Exec(ctx, "update berth.workers set cordoned_reason = $2 where id = $1", m.id, reason)
		if err == nil {
			_, err = s.pool.Exec(ctx, "select berth.set_open($1)", m.id)
		}
		if err != nil {
			return fmt.Errorf("cordon %s: %w", m.id, err)
		}
	}
	return nil
}
