package signaling

import (
	"context"
	"errors"

	"github.com/berthdev/berth/internal/berth"
)

// Media is the engine that the hub negotiates for. It speaks SDP text and candidates only.
type Media interface {
	// Open starts the media side of a session that this worker serves from now on. ErrNoHandler is final, after any
	// other error the client tries again.
	Open(ctx context.Context, session berth.Session) (MediaSession, error)
}

// MediaSession is the media side of one session.
type MediaSession interface {
	// AddPeer makes room for a peer. Its events may arrive from any goroutine until Close of the peer returns.
	AddPeer(ctx context.Context, peer berth.Peer, events PeerEvents) (MediaPeer, error)

	// Close ends the media of every peer. It does not block on the network.
	Close()
}

// MediaPeer is the media side of one connection. Its methods are called one at a time.
type MediaPeer interface {
	// Offer applies the client's offer. The answer is given in order with the peer's events, by whatever goroutine,
	// perhaps after Offer returned. A rejected offer changes nothing and has no answer.
	Offer(ctx context.Context, sdp string, answer func(sdp string)) error

	// Answer applies the client's answer to the engine's last offer.
	Answer(ctx context.Context, sdp string) error

	// Candidate adds a remote candidate. nil is the end of them, and one whose Candidate is empty the end of one generation.
	// Those before the first offer are the engine's to keep, up to a bound.
	Candidate(ctx context.Context, candidate *Candidate) error

	// Close ends the peer's media. It does not block on the network.
	Close()
}

// PeerEvents is what the engine tells a peer. The functions never block.
type PeerEvents struct {
	Candidate func(candidate *Candidate) // nil: there are no more
	Offer     func(sdp string)           // renegotiation
	Failed    func(err error)            // the peer's media ended by itself; a new offer starts it again
}

// Candidate is an RTCIceCandidateInit (W3C WebRTC, section 4.8.1).
type Candidate struct {
	Candidate        string  `json:"candidate"`
	SDPMid           *string `json:"sdpMid,omitempty"`
	SDPMLineIndex    *uint16 `json:"sdpMLineIndex,omitempty"`
	UsernameFragment *string `json:"usernameFragment,omitempty"`
}

// MediaError is a refusal by the engine that the client may see: its message holds nothing the client sent.
type MediaError struct {
	Code    string // one of the Media codes below
	Message string
}

func (e *MediaError) Error() string { return e.Message }

// Codes of error frames that come from the engine.
const (
	MediaBadSDP       = "bad_sdp"
	MediaBadCandidate = "bad_candidate"
	MediaNoOffer      = "no_offer" // an answer, while no offer of the server is open
	MediaGlare        = "glare"    // offers crossed: roll back, answer the server's, offer again
	MediaFailed       = "media_failed"
)

// ErrNoHandler means that the engine has no handler of the name that the session asks for.
var ErrNoHandler = errors.New("no such media handler")

// ErrMediaClosed reports use of a media peer that ended by itself.
var ErrMediaClosed = &MediaError{Code: MediaFailed, Message: "the media connection has ended: send a new offer"}

// frameErrorOf is what a client is told about an error of the engine, and whether that is all there is to know.
func frameErrorOf(err error) (wrong *frameError, known bool) {
	if m, ok := errors.AsType[*MediaError](err); ok {
		return &frameError{code: m.Code, message: m.Message}, true
	}
	return &frameError{code: MediaFailed, message: "the media engine failed"}, false
}
