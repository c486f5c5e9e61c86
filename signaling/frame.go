package signaling

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/berthdev/berth/internal/berth"
)

// Limits on what a client sends.
const (
	// MaxMessageBytes is the largest message that is read; a larger one closes with CloseTooBig.
	MaxMessageBytes = 128 << 10

	// MaxFrameDepth is how deep the JSON of a frame may nest; a deeper one is answered by an error frame.
	MaxFrameDepth = 16

	// MaxFrameID is the longest id of a frame, in bytes.
	MaxFrameID = 128
)

// Types of frames. The words are the protocol's.
const (
	typeWelcome          = "welcome"
	typeOffer            = "offer"
	typeAnswer           = "answer"
	typeCandidate        = "candidate"
	typePeerConnected    = "peer-connected"
	typePeerDisconnected = "peer-disconnected"
	typeRejoinOffer      = "rejoin-offer"
	typeMoved            = "moved"
	typeError            = "error"
	typePing             = "ping"
	typePong             = "pong"
	typeBye              = "bye"
)

// Codes of error frames that are not the engine's, see MediaError.
const (
	codeInvalidFrame = "invalid_frame" // malformed members, too deep, a member that the type does not have
	codeUnknownType  = "unknown_type"
)

// frameError is a wrong frame that is answered and does not end the connection.
type frameError struct {
	code    string
	message string
}

func (e *frameError) Error() string { return e.message }

// client reports whether the client is to blame, and not what is behind this server.
func (e *frameError) client() bool { return e.code != codeUnavailable && e.code != MediaFailed }

func invalid(message string) *frameError {
	return &frameError{code: codeInvalidFrame, message: message}
}

// errNotJSON means that a text frame holds no JSON object with a type: no client of this protocol sends that.
var errNotJSON = errors.New(reasonNotJSON)

// request is a client's frame: its members depend on its type.
type request struct {
	kind      string
	id        string
	sdp       string
	candidate *Candidate // nil: end of candidates

	// See topicframe.go.
	wishes []wish
	topics []string
	data   []byte
}

// head is what every frame has.
type head struct {
	Type string `json:"type"`
	ID   string `json:"id,omitempty"`
}

type sdpBody struct {
	head
	SDP *string `json:"sdp"`
}

type candidateBody struct {
	head
	Candidate jsontext.Value `json:"candidate"`
}

// parse reads a client's frame strictly. The request carries the frame's id even when the frame is wrong. Errors:
// errNotJSON, or a *frameError.
func parse(data []byte) (request, error) {
	if depth(data) > MaxFrameDepth {
		return request{}, invalid("JSON nests too deep: at most 16 levels")
	}
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return request{}, notJSONOr(data, invalid("type and id are strings"))
	}
	if h.Type == "" {
		return request{}, errNotJSON
	}
	if len(h.ID) > MaxFrameID {
		return request{}, invalid("id is at most 128 bytes long")
	}
	req := request{kind: h.Type, id: h.ID}
	return req, req.parseBody(data)
}

// notJSONOr distinguishes bytes that are no JSON object from an object with wrong members.
func notJSONOr(data []byte, wrong error) error {
	value := jsontext.Value(data)
	if !value.IsValid() || value.Kind() != '{' {
		return errNotJSON
	}
	return wrong
}

func (r *request) parseBody(data []byte) error {
	switch r.kind {
	case typeOffer, typeAnswer:
		return r.parseSDP(data)
	case typeCandidate:
		return r.parseCandidate(data)
	case typeSubscribe:
		return r.parseSubscribe(data)
	case typeUnsubscribe:
		return r.parseUnsubscribe(data)
	case typePublish:
		return r.parsePublish(data)
	case typePresence:
		return r.parsePresence(data)
	case typeBye, typePong:
		if strict(data, &head{}) != nil {
			return invalid(r.kind + " has no members but type and id")
		}
		return nil
	default:
		return &frameError{code: codeUnknownType, message: "this type is not known here"}
	}
}

func (r *request) parseSDP(data []byte) error {
	var body sdpBody
	if strict(data, &body) != nil || body.SDP == nil || *body.SDP == "" {
		return invalid(r.kind + " has one member, sdp: a string that is not empty")
	}
	if strings.ContainsRune(*body.SDP, 0) {
		return invalid("sdp holds a NUL character")
	}
	r.sdp = *body.SDP
	return nil
}

func (r *request) parseCandidate(data []byte) error {
	var body candidateBody
	if strict(data, &body) != nil || body.Candidate == nil {
		return invalid("candidate has one member, candidate: an RTCIceCandidateInit or null")
	}
	if body.Candidate.Kind() == 'n' {
		return nil
	}
	var c Candidate
	if strict(body.Candidate, &c) != nil {
		return invalid("candidate has the members candidate, sdpMid, sdpMLineIndex and usernameFragment")
	}
	if strings.ContainsRune(c.Candidate, 0) {
		return invalid("candidate holds a NUL character")
	}
	r.candidate = &c
	return nil
}

func strict(data []byte, into any) error {
	return json.Unmarshal(data, into, json.RejectUnknownMembers(true))
}

// depth is the deepest nesting of objects and arrays in data, without parsing it: brackets inside strings do not
// count.
func depth(data []byte) int {
	deepest, level, text := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

// peerInfo names a peer in frames.
type peerInfo struct {
	ID   string `json:"id"`
	Role string `json:"role"`
}

func infoOf(p berth.Peer) peerInfo { return peerInfo{ID: p.ID, Role: p.Role} }

type welcomeFrame struct {
	Type        string           `json:"type"`
	Session     string           `json:"session"`
	Generation  berth.Generation `json:"generation"`
	Peer        peerInfo         `json:"peer"`
	Peers       []peerInfo       `json:"peers"`
	ICEServers  []ICEServer      `json:"ice_servers"`
	PingSeconds float64          `json:"ping_seconds"`
}

type sdpFrame struct {
	Type    string `json:"type"`
	SDP     string `json:"sdp"`
	ReplyTo string `json:"reply_to,omitempty"`
}

// offerFrame is the other peer's offer: of one that came back to a call, or of one that is new to it.
type offerFrame struct {
	Type   string `json:"type"`
	PeerID string `json:"peer_id,omitempty"`
	Role   string `json:"role,omitempty"`
	SDP    string `json:"sdp"`
}

type candidateFrame struct {
	Type      string     `json:"type"`
	Candidate *Candidate `json:"candidate"`
}

type peerFrame struct {
	Type   string `json:"type"`
	PeerID string `json:"peer_id"`
	Role   string `json:"role"`
	Reason string `json:"reason,omitempty"`
}

type movedFrame struct {
	Type    string `json:"type"`
	RetryMS int64  `json:"retry_ms"`
}

type errorFrame struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Topic   string `json:"topic,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
}

type plainFrame struct {
	Type string `json:"type"`
}

// encode renders a frame. The frame types above hold strings and numbers only, and invalid UTF-8 in an SDP from the
// engine is replaced, so there is nothing that can fail; an empty frame is never queued.
func encode(frame any) []byte {
	data, err := json.Marshal(frame, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil
	}
	return data
}
