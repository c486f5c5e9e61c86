package signaling

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"
)

// negotiateTimeout bounds one call to the media engine on behalf of a client.
const negotiateTimeout = 10 * time.Second

// handle acts on one message of the client. It runs in the reader goroutine: one frame at a time, in order.
func (p *peer) handle(ctx context.Context, text bool, message []byte) {
	switch {
	case !text:
		p.sender.close(CloseBad, reasonBinary)
		return
	case !utf8.Valid(message):
		p.sender.close(CloseNotUTF8, reasonNotUTF8)
		return
	}
	if !p.paced(message) {
		return
	}
	req, err := parse(message)
	p.charge(req)
	var wrong *frameError
	switch {
	case errors.As(err, &wrong):
		p.count("invalid")
		p.reject(req.id, wrong)
	case err != nil:
		p.count("invalid")
		p.sender.close(CloseBad, reasonNotJSON)
	default:
		p.count(req.kind)
		p.dispatch(ctx, req)
	}
}

// count counts a frame. Its kind is one that parse accepted, or "invalid".
func (p *peer) count(kind string) { p.hub.metrics.frames.WithLabelValues(kind).Inc() }

// reject answers a frame that was not accepted, and closes a connection whose client does not learn.
func (p *peer) reject(id string, wrong *frameError) {
	if wrong.client() {
		p.errors++
	}
	if p.errors > maxErrors {
		p.sender.close(CloseBad, reasonTooManyErrors)
		return
	}
	p.sender.send(encode(errorFrame{Type: typeError, Code: wrong.code, Message: wrong.message, ReplyTo: id}))
}

func (p *peer) dispatch(ctx context.Context, req request) {
	switch req.kind {
	case typePong:
	case typeBye:
		p.leave()
	case typeSubscribe, typeUnsubscribe, typePublish, typePresence:
		p.topicFrame(ctx, req)
	default:
		p.negotiate(ctx, req)
	}
}

// leave takes the peer off its session at once, ends the session if it was the last, and says goodbye. The database is
// told once the peer is off: the end of a call, which it may answer at once, is no goodbye.
func (p *peer) leave() {
	p.bye = true
	p.closeMedia()
	gone := p.gone(p.session.held)
	gone.Left = true
	p.hub.detach(p.session, p, true)
	p.hub.settler.disconnect(gone)
	p.sender.close(CloseBye, reasonBye)
}

// negotiate hands a description or candidate to the media engine. A refusal is answered and changes nothing.
func (p *peer) negotiate(ctx context.Context, req request) {
	ctx, cancel := context.WithTimeout(ctx, negotiateTimeout)
	defer cancel()
	err := p.exchange(ctx, req)
	if req.kind == typeOffer && errors.Is(err, ErrMediaClosed) {
		p.closeMedia() // it ended by itself: this offer starts it again
		err = p.exchange(ctx, req)
	}
	if err == nil {
		return
	}
	wrong, known := frameErrorOf(err)
	if !known {
		p.hub.deps.Logger.WarnContext(ctx, "media failed", "session_id", p.session.id,
			"generation", int64(p.session.held.Generation), "peer_id", p.info.ID, "frame", req.kind, "err", err)
	}
	p.reject(req.id, wrong)
}

// exchange hands one frame over. It makes the peer's media at the first frame that needs it.
func (p *peer) exchange(ctx context.Context, req request) error {
	if p.media == nil {
		media, err := p.session.media.AddPeer(ctx, p.info, p.events())
		if err != nil {
			return err
		}
		p.media = media
	}
	switch req.kind {
	case typeOffer:
		return p.media.Offer(ctx, req.sdp, func(sdp string) {
			p.sender.send(encode(sdpFrame{Type: typeAnswer, SDP: sdp, ReplyTo: req.id}))
		})
	case typeAnswer:
		return p.media.Answer(ctx, req.sdp)
	default:
		return p.media.Candidate(ctx, req.candidate)
	}
}

func (p *peer) closeMedia() {
	if p.media != nil {
		p.media.Close()
		p.media = nil
	}
}

// events are what the engine may tell this connection: they only enqueue.
func (p *peer) events() PeerEvents {
	return PeerEvents{
		Candidate: func(c *Candidate) { p.sender.send(encode(candidateFrame{Type: typeCandidate, Candidate: c})) },
		Offer:     func(sdp string) { p.sender.send(encode(sdpFrame{Type: typeOffer, SDP: sdp})) },
		Failed: func(err error) {
			wrong, _ := frameErrorOf(err)
			p.sender.send(encode(errorFrame{Type: typeError, Code: wrong.code, Message: wrong.message}))
		},
	}
}
