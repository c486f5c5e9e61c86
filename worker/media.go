package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/media"
	"github.com/berthdev/berth/signaling"
)

// mediaAdapter is the engine as signaling needs it: no Pion type crosses here.
type mediaAdapter struct {
	engine *media.Engine
}

// NewMedia lets signaling negotiate for the engine. The caller closes the engine after the worker has stopped.
func NewMedia(engine *media.Engine) signaling.Media { return &mediaAdapter{engine: engine} }

// Open implements signaling.Media.
func (a *mediaAdapter) Open(_ context.Context, session berth.Session) (signaling.MediaSession, error) {
	s, err := a.engine.Open(media.SessionConfig{
		Key:     strconv.FormatInt(int64(session.Key), 10),
		Handler: session.Handler,
	})
	if errors.Is(err, media.ErrUnknownHandler) {
		return nil, fmt.Errorf("%w: %w", signaling.ErrNoHandler, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open media session: %w", err)
	}
	return &mediaSession{session: s}, nil
}

type mediaSession struct {
	session *media.Session
}

// AddPeer implements signaling.MediaSession.
func (s *mediaSession) AddPeer(
	ctx context.Context, peer berth.Peer, events signaling.PeerEvents,
) (signaling.MediaPeer, error) {
	p, err := s.session.AddPeer(ctx, media.PeerConfig{ID: peer.ID, Events: mediaEvents{to: events}})
	if err != nil {
		return nil, mediaError(err)
	}
	return &mediaPeer{peer: p}, nil
}

// Close implements signaling.MediaSession.
func (s *mediaSession) Close() { s.session.Close("session left this worker") }

type mediaPeer struct {
	peer *media.Peer
}

// Offer implements signaling.MediaPeer.
func (p *mediaPeer) Offer(ctx context.Context, sdp string, answer func(sdp string)) error {
	return mediaError(p.peer.OfferFunc(ctx, sdp, answer))
}

// Answer implements signaling.MediaPeer.
func (p *mediaPeer) Answer(ctx context.Context, sdp string) error {
	return mediaError(p.peer.Answer(ctx, sdp))
}

// Candidate implements signaling.MediaPeer.
func (p *mediaPeer) Candidate(ctx context.Context, c *signaling.Candidate) error {
	return mediaError(p.peer.Candidate(ctx, (*media.Candidate)(c)))
}

// Close implements signaling.MediaPeer.
func (p *mediaPeer) Close() { p.peer.Close() }

// mediaEvents passes the engine's events on.
type mediaEvents struct {
	to signaling.PeerEvents
}

// Candidate implements media.PeerEvents.
func (e mediaEvents) Candidate(c *media.Candidate) {
	e.to.Candidate((*signaling.Candidate)(c))
}

// Offer implements media.PeerEvents.
func (e mediaEvents) Offer(sdp string) { e.to.Offer(sdp) }

// State implements media.PeerEvents. Only an end that signaling did not ask for is news to the client.
func (e mediaEvents) State(state media.PeerState, err error) {
	if state == media.StateClosed && !errors.Is(err, media.ErrClosed) && !errors.Is(err, media.ErrLeft) {
		e.to.Failed(signaling.ErrMediaClosed)
	}
}

// mediaError maps the engine's errors to what a client may see. Their detail is safe by the engine's contract.
func mediaError(err error) error {
	var code string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, media.ErrClosed):
		return signaling.ErrMediaClosed
	case errors.Is(err, media.ErrBadSDP):
		code = signaling.MediaBadSDP
	case errors.Is(err, media.ErrBadCandidate), errors.Is(err, media.ErrTooManyCandidates):
		code = signaling.MediaBadCandidate
	case errors.Is(err, media.ErrNoOffer):
		code = signaling.MediaNoOffer
	case errors.Is(err, media.ErrGlare):
		code = signaling.MediaGlare
	case errors.Is(err, media.ErrTooManyPeers):
		code = signaling.MediaFailed
	default:
		return err
	}
	return &signaling.MediaError{Code: code, Message: err.Error()}
}
