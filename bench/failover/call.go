package failover

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// talkLimit is how long an offer may take to be answered.
	talkLimit = 10 * time.Second
	// dialers is how many calls are made at a time.
	dialers = 16
)

// call is a session of kind call with its two peers.
type call struct {
	id    string
	peers [2]*peer
}

// newCall names a call. It is not placed yet.
func (s *scene) newCall() *call {
	s.started++
	return &call{id: fmt.Sprintf("c-%d", s.started), peers: [2]*peer{{id: "a"}, {id: "b"}}}
}

// other is the partner of a peer.
func (c *call) other(p *peer) *peer {
	if p == c.peers[0] {
		return c.peers[1]
	}
	return c.peers[0]
}

// place seats one of the call's peers.
func (s *scene) place(ctx context.Context, c *call, p *peer) (err error) {
	if p.placement, err = s.client.seat(ctx, c.id, p.id); err != nil {
		return err
	}
	return s.find(p)
}

// find notes which worker a peer is on.
func (s *scene) find(p *peer) error {
	for _, m := range s.workers {
		if m.id == p.placement.Owner.WorkerID {
			p.worker = m
			return nil
		}
	}
	return fmt.Errorf("peer %s of %s is on the unknown worker %q", p.id, p.placement.ID, p.placement.Owner.WorkerID)
}

// make places a call, connects both peers and lets them negotiate.
func (s *scene) make(ctx context.Context, c *call) error {
	for _, p := range c.peers {
		if err := s.arrive(ctx, c, p); err != nil {
			return err
		}
	}
	return s.mended(ctx, c, c.negotiate(ctx, c.peers[0], "offer"))
}

// arrive places a peer and connects it.
func (s *scene) arrive(ctx context.Context, c *call, p *peer) error {
	if err := s.place(ctx, c, p); err != nil {
		return err
	}
	return s.reached(ctx, p, p.connect(ctx))
}

// reached has a peer rejoin that was dropped as it came, as its client would. That should not happen, so it is counted.
func (s *scene) reached(ctx context.Context, p *peer, err error) error {
	if err == nil || !p.gone() {
		return err
	}
	s.tally.dropped(1, "as it came: %v", err)
	return s.comeBack(ctx, p)
}

// mended restores a call of which a peer was dropped while it was made. It is counted as well.
func (s *scene) mended(ctx context.Context, c *call, err error) error {
	if err == nil || !c.peers[0].gone() && !c.peers[1].gone() {
		return err
	}
	s.tally.dropped(1, "as it was made: %v", err)
	return s.restoreOne(ctx, c)
}

// comeBack has a peer rejoin.
func (s *scene) comeBack(ctx context.Context, p *peer) (err error) {
	if p.placement, err = s.client.rejoin(ctx, p.placement); err != nil {
		return err
	}
	if err := s.find(p); err != nil {
		return err
	}
	return p.connect(ctx)
}

// negotiate has a peer offer, and waits until the other one's answer is there. kind is what the other one hears.
func (c *call) negotiate(ctx context.Context, p *peer, kind string) error {
	began := time.Now()
	if err := c.offer(ctx, p); err != nil {
		return err
	}
	return c.answered(ctx, p, began, kind)
}

func (c *call) offer(ctx context.Context, p *peer) error {
	if err := p.say(ctx, frame{Type: "offer", SDP: "v=0 " + c.id + p.id}); err != nil {
		return fmt.Errorf("peer %s of %s on %s could not offer: %w (%w)", p.id, c.id, p.worker.id, err, p.reason())
	}
	return nil
}

// answered waits until a peer has the answer to its offer.
func (c *call) answered(ctx context.Context, p *peer, began time.Time, kind string) error {
	if eventually(ctx, talkLimit, func() bool { return p.has("answer", began) || p.gone() }) && !p.gone() {
		return nil
	}
	return fmt.Errorf("call %s: peer %s on %s had no answer from %s in %s; that one heard %s: %t; connections: %w, %w",
		c.id, p.id, p.worker.id, c.other(p).worker.id, talkLimit, kind, c.other(p).has(kind, began), p.reason(),
		c.other(p).reason())
}

// fill makes calls until there are n.
func (s *scene) fill(ctx context.Context, n int) error {
	group, making := errgroup.WithContext(ctx)
	group.SetLimit(dialers)
	for len(s.calls) < n {
		c := s.newCall()
		s.calls = append(s.calls, c)
		group.Go(func() error { return s.make(making, c) })
	}
	return group.Wait()
}

// restore makes calls whole whose peers lost their workers: each such peer rejoins and connects, and the first of them
// offers, which reaches a survivor as a rejoin-offer.
func (s *scene) restore(ctx context.Context) error {
	group, restoring := errgroup.WithContext(ctx)
	group.SetLimit(dialers)
	for _, c := range s.calls {
		group.Go(func() error { return s.restoreOne(restoring, c) })
	}
	return group.Wait()
}

func (s *scene) restoreOne(ctx context.Context, c *call) error {
	var back []*peer
	for _, p := range c.peers {
		if !p.gone() {
			continue
		}
		if err := s.comeBack(ctx, p); err != nil {
			return err
		}
		back = append(back, p)
	}
	if len(back) == 0 {
		return nil
	}
	return c.negotiate(ctx, back[0], "rejoin-offer")
}

// replace ends calls and makes others in their place.
func (s *scene) replace(ctx context.Context, lost []*call) error {
	group, making := errgroup.WithContext(ctx)
	group.SetLimit(dialers)
	for _, c := range lost {
		if err := s.client.end(ctx, tenantCalls, c.id); err != nil {
			return err
		}
		c.hangUp()
		next := s.newCall()
		c.id, c.peers = next.id, next.peers
		group.Go(func() error { return s.make(making, c) })
	}
	return group.Wait()
}

// hangUp cuts both connections.
func (c *call) hangUp() {
	for _, p := range c.peers {
		p.hangUp()
	}
}
