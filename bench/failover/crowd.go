package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/bench/lab"
)

// crowdDialers is how many calls are made at a time.
const crowdDialers = 32

// crowd kills a worker that has one peer of each of many calls, while another tenant starts sessions.
func (r *rig) crowd(ctx context.Context, detector string) (c Case, err error) {
	// All must have come back before they are given up, on a slow machine too.
	window := []string{"BERTH_REJOIN_WINDOW=10m"}
	s, err := r.raise(ctx, tuning{detector: detector, api: window, worker: window})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	victim := s.workers[0]
	if err := s.gather(ctx, victim, r.cfg.Crowd); err != nil {
		return c, fmt.Errorf("gather calls: %w", err)
	}
	return s.strikeCrowd(ctx, victim)
}

// strikeCrowd kills a worker while another tenant starts sessions. The clients of calls give way to both.
func (s *scene) strikeCrowd(ctx context.Context, victim *member) (c Case, err error) {
	claims, err := s.startClaims(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, claims.aside.Close()) }()
	gave, takeBack, err := lab.GiveWay(2 * len(s.calls))
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, takeBack()) }()
	after := func() error { return errors.Join(takeBack(), claims.stop(ctx)) }
	sample, err := s.kill(ctx, []*member{victim}, claims.mark, after)
	c = newCase(PartMany, "crowd", s.tuning.detector, []Sample{sample})
	c.Claims = claims.result()
	c.Claims.GaveWay = gave
	return c, err
}

// gather makes calls whose first peers are all on one worker, and whose other peers are elsewhere. The workers that
// should get none meanwhile are cordoned. The first peers offer before the others are there.
func (s *scene) gather(ctx context.Context, victim *member, n int) error {
	for range n {
		s.calls = append(s.calls, s.newCall())
	}
	for i, arrive := range []func(context.Context, *call) error{s.arriveFirst, s.arriveSecond} {
		if err := s.cordon(ctx, func(m *member) bool { return (m == victim) == (i == 1) }); err != nil {
			return err
		}
		if err := s.each(ctx, arrive); err != nil {
			return err
		}
	}
	for _, c := range s.calls {
		if c.peers[0].worker != victim || c.peers[1].worker == victim {
			return fmt.Errorf("call %s is on %s and %s", c.id, c.peers[0].worker.id, c.peers[1].worker.id)
		}
	}
	return s.cordon(ctx, func(*member) bool { return false })
}

func (s *scene) arriveFirst(ctx context.Context, c *call) error {
	p := c.peers[0]
	if err := s.arrive(ctx, c, p); err != nil {
		return err
	}
	err := c.offer(ctx, p)
	if err != nil && p.gone() {
		return errors.Join(s.reached(ctx, p, err), c.offer(ctx, p))
	}
	return err
}

func (s *scene) arriveSecond(ctx context.Context, c *call) error {
	began := time.Now()
	if err := s.arrive(ctx, c, c.peers[1]); err != nil {
		return err
	}
	return s.mended(ctx, c, c.answered(ctx, c.peers[0], began, "offer"))
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
