package media

import "errors"

// Errors that callers tell apart. They may be wrapped with detail that is safe to show to the client.
var (
	// ErrBadSDP reports a session description that cannot be used. Nothing has changed.
	ErrBadSDP = errors.New("media: bad session description")
	// ErrBadCandidate reports an ICE candidate that cannot be parsed. Nothing has changed.
	ErrBadCandidate = errors.New("media: bad candidate")
	// ErrTooManyCandidates reports a candidate beyond the bound on those kept for a description that has
	// not arrived (64) or added to one (256). The candidate is dropped; the peer goes on.
	ErrTooManyCandidates = errors.New("media: too many candidates")
	// ErrNoOffer reports an answer while no offer of the server is open. Nothing has changed.
	ErrNoOffer = errors.New("media: answer without an offer")
	// ErrGlare reports an offer that crossed one of the server. The client rolls its own back, answers the
	// server's and offers again.
	ErrGlare = errors.New("media: offer crossed an offer of the server")
	// ErrUnknownHandler reports a session for a handler that is not configured.
	ErrUnknownHandler = errors.New("media: unknown handler")
	// ErrTooManyPeers reports a peer beyond Config.MaxPeers or Config.MaxSessionPeers.
	ErrTooManyPeers = errors.New("media: too many peers")
	// ErrNoLine reports a track for which the peer offered no line that could carry it.
	ErrNoLine = errors.New("media: no line for the track")
	// ErrClosed reports use of an engine, session or peer that is closed or closing.
	ErrClosed = errors.New("media: closed")
)

// Reasons for which a peer ends that are not ErrClosed. PeerEvents.State reports them.
var (
	// ErrLeft: the client closed its connection.
	ErrLeft = errors.New("media: peer left")
	// ErrICEFailed: no path to the client, or DTLS failed.
	ErrICEFailed = errors.New("media: connection failed")
	// ErrConnectTimeout: not connected within Config.ConnectTimeout after the first answer.
	ErrConnectTimeout = errors.New("media: not connected in time")
	// ErrAnswerTimeout: the client did not answer an offer of the server.
	ErrAnswerTimeout = errors.New("media: offer not answered in time")
	// ErrHandler: the handler or its set-up failed.
	ErrHandler = errors.New("media: handler failed")
	// ErrPanic: code that served the peer panicked.
	ErrPanic = errors.New("media: internal error")
)
