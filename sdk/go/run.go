package berth

import (
	"context"
	"errors"
	"time"
)

// run owns the connection from Connect to its end: it makes a link, serves it until it is lost, and does what the
// policy says. Nothing else changes the connection's state.
func (c *Conn) run(ctx context.Context) {
	c.notifier.tell(c.state)
	err := c.links(ctx)
	c.change(StateClosed, err)
	c.cancel(err)
	close(c.ended)
	c.closing.Wait()
	c.notifier.stop()
	close(c.done)
}

// links returns why the connection is over, nil when Close was called.
func (c *Conn) links(ctx context.Context) error {
	for {
		lost := c.link(ctx)
		for again := false; !again; {
			if ctx.Err() != nil {
				return closeReason(ctx)
			}
			next := c.lose(ctx, lost)
			if next.step == stepStop {
				return next.err
			}
			if c.client.sleep(ctx, next.wait) != nil {
				return closeReason(ctx)
			}
			lost = c.prepare(ctx, next)
			again = lost == nil
		}
	}
}

// prepare does what is needed before the next link; it returns nil when there is a placement to connect to.
func (c *Conn) prepare(ctx context.Context, next plan) *loss {
	if next.step == stepReconnect && !c.tokenExpired() {
		return nil
	}
	return c.rejoin(ctx, next.lost)
}

func closeReason(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errClosed) {
		return cause
	}
	return nil
}

// lose records a loss and asks the policy.
func (c *Conn) lose(ctx context.Context, l *loss) plan {
	c.setLastLoss(l.err)
	if c.awaySince.IsZero() {
		c.awaySince = time.Now()
	}
	next := c.policy.next(l, time.Since(c.awaySince))
	if next.step == stepStop {
		c.log.WarnContext(ctx, "connection over", "session_id", c.Placement().ID, "err", next.err)
		return next
	}
	c.offline(l.err)
	c.log.InfoContext(ctx, "link lost", "session_id", c.Placement().ID, "code", int(l.code), "err", l.err, "wait", next.wait)
	return next
}

// link makes one link and serves it until it is lost.
func (c *Conn) link(ctx context.Context) *loss {
	k, lost := c.open(ctx)
	if lost == nil {
		c.setMedia(k.pc)
		lost = c.serve(ctx, k)
		lost.opened, lost.uptime = true, time.Since(k.openedAt)
		c.setMedia(nil)
	}
	if k != nil {
		c.closeLink(ctx, k)
	}
	return lost
}

// online is called when the current link's media flows.
func (c *Conn) online(ctx context.Context) {
	generation := c.Placement().Generation
	c.mu.Lock()
	if c.reached && generation > c.generation {
		c.moves++
	}
	c.mu.Unlock()
	c.awaySince, c.generation, c.refusals = time.Time{}, generation, 0
	c.change(StateConnected, nil)
	c.log.InfoContext(ctx, "connected", "placement", c.Placement())
	if !c.reached {
		c.reached = true
		close(c.connected)
	}
}

// offline is called when media stopped to flow. A connection that never was connected is still connecting.
func (c *Conn) offline(reason error) {
	if c.awaySince.IsZero() {
		c.awaySince = time.Now()
	}
	if c.reached {
		c.change(StateReconnecting, reason)
	}
}

// rejoin asks the API who owns the session; nil means that there is a placement to connect to. One attempt: the
// policy spaces the next one.
func (c *Conn) rejoin(ctx context.Context, lost bool) *loss {
	current := c.Placement()
	request := RejoinRequest{ID: current.ID, Generation: current.Generation, Lost: lost}
	if current.RejoinToken != "" {
		request.URL, request.Token = current.RejoinURL, current.RejoinToken
	}
	placement, err := c.client.rejoin(ctx, request, 0)
	if err == nil {
		err = checkPlacement(placement)
	}
	if err != nil {
		return rejoinLoss(err)
	}
	if placement.RejoinToken == "" {
		placement.RejoinToken, placement.RejoinURL = current.RejoinToken, current.RejoinURL
	}
	c.setPlacement(*placement)
	return nil
}

// tokenExpired spares a handshake that would be refused. If the clocks disagree, the owner's 4401 has the same effect.
func (c *Conn) tokenExpired() bool {
	expires := c.Placement().TokenExpiresAt
	return !expires.IsZero() && time.Now().After(expires)
}
