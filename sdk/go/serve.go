package berth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pion/webrtc/v4"
)

// open makes a link up to its offer. A link that is returned must be closed, also when there is a loss.
func (c *Conn) open(ctx context.Context) (*link, *loss) {
	placement := c.Placement()
	shake, cancel := context.WithTimeout(ctx, c.config.HandshakeTimeout)
	defer cancel()
	k, lost := c.dial(shake, placement)
	if lost != nil {
		return nil, lost
	}
	if lost := c.awaitWelcome(shake, k); lost != nil {
		return k, lost
	}
	c.topics.begin(ctx, k)
	if c.config.SignalingOnly {
		return k, nil
	}
	if len(k.iceServers) == 0 {
		k.iceServers = placement.ICEServers
	}
	if err := c.startMedia(ctx, k, placement.Owner.SignalingURL); err != nil {
		return k, &loss{kind: lossFinal, err: fmt.Errorf("berth: %w", err)}
	}
	return k, nil
}

// awaitWelcome waits until the owner has admitted this peer.
func (c *Conn) awaitWelcome(ctx context.Context, k *link) *loss {
	for {
		select {
		case <-ctx.Done():
			return &loss{kind: lossDial, err: fmt.Errorf("the owner sent no welcome: %w", context.Cause(ctx))}
		case e := <-k.events:
			switch {
			case e.closed != nil:
				return e.closed
			case e.frame.Type == typePing:
				k.write(ctx, plainFrame{Type: typePong})
			case e.frame.Type == typeWelcome:
				k.welcomed(e.frame)
				return nil
			}
		}
	}
}

func (k *link) welcomed(f *frame) {
	k.openedAt = time.Now()
	k.iceServers = f.ICEServers
	interval := defaultPingTime
	if f.PingSeconds > 0 && f.PingSeconds < maxPlannedWait.Seconds() {
		interval = scale(time.Second, f.PingSeconds)
	}
	k.quiet = 2*interval + probeTimeout
	k.heard()
}

// serve handles what happens to a link until it is lost or the Conn is closed.
func (c *Conn) serve(ctx context.Context, k *link) *loss {
	if c.config.SignalingOnly {
		c.online(ctx)
	} else {
		k.media.Reset(c.config.MediaTimeout)
	}
	for {
		select {
		case <-ctx.Done():
			return &loss{kind: lossFinal, err: context.Cause(ctx)}
		case e := <-k.events:
			if lost := c.handle(ctx, k, e); lost != nil {
				return lost
			}
		case <-k.silence.C:
			return &loss{code: closeLost, err: fmt.Errorf("nothing from the owner for %s", k.quiet)}
		case <-k.media.C:
			return &loss{kind: lossMedia, err: fmt.Errorf("media did not connect within %s", c.config.MediaTimeout)}
		case <-k.moved.C:
			return &loss{code: closeMoved, err: errors.New("the owner announced a move")}
		}
	}
}

func (c *Conn) handle(ctx context.Context, k *link, e event) *loss {
	switch {
	case e.closed != nil:
		return e.closed
	case e.candidate != nil:
		k.write(ctx, e.candidate)
		return nil
	case e.probe != nil:
		return c.probed(ctx, k, e.probe.err)
	case e.frame != nil:
		k.heard()
		return c.handleFrame(ctx, k, e.frame)
	default:
		c.mediaChanged(ctx, k)
		return nil
	}
}

func (c *Conn) handleFrame(ctx context.Context, k *link, f *frame) *loss {
	switch f.Type {
	case typePing:
		k.write(ctx, plainFrame{Type: typePong})
	case typeMoved:
		k.moved.Reset(plannedWait(f.RetryMS))
	case typeError:
		return c.refusedFrame(ctx, k, f)
	default:
		if k.pc != nil {
			return c.handleMedia(ctx, k, f)
		}
	}
	return nil
}

// handleMedia handles what the owner says to a link's PeerConnection.
func (c *Conn) handleMedia(ctx context.Context, k *link, f *frame) *loss {
	switch f.Type {
	case typeAnswer:
		return mediaLoss(k.answered(f.SDP))
	case typeOffer:
		return mediaLoss(k.answer(ctx, f.SDP))
	case typeCandidate:
		k.addCandidate(f.Candidate)
	}
	return nil
}

func mediaLoss(err error) *loss {
	if err == nil {
		return nil
	}
	return &loss{kind: lossMedia, err: err}
}

// refusedFrame handles an error frame. Only a refused offer matters: Pion cannot roll it back, so the next link makes
// a fresh one. A first offer that is refused twice is refused for good.
func (c *Conn) refusedFrame(ctx context.Context, k *link, f *frame) *loss {
	if k.pc == nil || f.ReplyTo != k.offerID() {
		c.log.WarnContext(ctx, "frame refused", "code", f.Code, "message", f.Message)
		return nil
	}
	err := fmt.Errorf("the owner refused the offer: %s: %s", f.Code, f.Message)
	if k.described {
		return mediaLoss(err)
	}
	c.refusals++
	if c.refusals > 1 {
		return &loss{kind: lossFinal, err: fmt.Errorf("%w: %w", ErrRejected, err)}
	}
	return mediaLoss(err)
}

// mediaChanged reacts to the PeerConnection's state. Events may be late, so it looks at the state as it is now.
func (c *Conn) mediaChanged(ctx context.Context, k *link) {
	switch k.pc.ConnectionState() {
	case webrtc.PeerConnectionStateConnected:
		k.media.Stop()
		if k.mediaAt.IsZero() {
			k.mediaAt = time.Now()
		}
		c.online(ctx)
	case webrtc.PeerConnectionStateDisconnected:
		// Nothing arrives. Either the path broke or the owner is gone; only the second makes signaling silent too.
		c.offline(errMediaSilent)
		k.media.Reset(c.config.MediaTimeout)
		k.ping(ctx)
	case webrtc.PeerConnectionStateFailed, webrtc.PeerConnectionStateClosed:
		// An owner that ends a session closes its media too, and that may be seen before its close frame, which says
		// what to do. The answer to a ping cannot overtake the frame.
		k.ping(ctx)
	default:
	}
}

var errMediaSilent = errors.New("no media from the owner")

// probed restarts ICE if the owner answered, and gives the link up if it did not or if media is over.
func (c *Conn) probed(ctx context.Context, k *link, err error) *loss {
	state := k.pc.ConnectionState()
	over := state == webrtc.PeerConnectionStateFailed || state == webrtc.PeerConnectionStateClosed
	switch {
	case !over && state != webrtc.PeerConnectionStateDisconnected:
		return nil // it came back
	case errors.Is(err, context.DeadlineExceeded):
		return &loss{code: closeLost, err: fmt.Errorf("no media, and signaling is silent: %w", err)}
	case err != nil:
		return nil // the socket is closed, and the reader knows the code
	case over:
		return &loss{kind: lossMedia, err: errors.New("media failed")}
	case k.pc.SignalingState() != webrtc.SignalingStateStable:
		return nil // a negotiation is under way already; the media timer watches it
	default:
		return mediaLoss(k.offer(ctx, &webrtc.OfferOptions{ICERestart: true}))
	}
}
