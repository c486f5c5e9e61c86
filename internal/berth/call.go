package berth

import "strconv"

// CallMessage is what the workers and the reaper tell each other about one call, on its topic.
type CallMessage struct {
	Type       string `json:"type"`                 // see the constants below
	PeerID     string `json:"peer_id"`              // whom it is from, or about
	Role       string `json:"role,omitempty"`       // of that peer
	Connection string `json:"connection,omitempty"` // of that peer
	At         int64  `json:"at,omitempty"`         // when that connected, in microseconds by the database's clock; absent in CallDisconnected
	To         string `json:"to,omitempty"`         // the connection whose offer a CallAnswer answers
	Again      bool   `json:"again,omitempty"`      // the first offer after a return

	// Saw has the connections that the peer knows of, with CallConnected: another, which came at the same time, says
	// once more that it is there.
	Saw    []string `json:"saw,omitempty"`
	Reason string   `json:"reason,omitempty"` // of CallDisconnected: left, lost, or the cause of a CallNotice

	// A description or a candidate as the client sent it; without either, CallCandidate says that there are no more.
	SDP       string `json:"sdp,omitempty"`
	Candidate []byte `json:"candidate,omitempty"`
}

// Types of call messages.
const (
	CallOffer        = "offer"
	CallAnswer       = "answer"
	CallCandidate    = "candidate"
	CallConnected    = "peer-connected"
	CallDisconnected = "peer-disconnected"
)

// CallLeft is the reason of a peer that said bye: the call is over.
const CallLeft = "left"

// CallMoved is the reason of a peer that its worker sent away: it comes back at another within seconds.
const CallMoved = "moved"

// CallTopic names the topic of a call.
func CallTopic(key SessionKey) string { return "call." + strconv.FormatInt(int64(key), 10) }
