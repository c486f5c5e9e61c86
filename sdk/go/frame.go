package berth

import (
	"encoding/json"
	"fmt"

	"github.com/pion/webrtc/v4"
)

// Types of the signaling protocol's frames that this client knows. Others are ignored.
const (
	typeWelcome   = "welcome"
	typeOffer     = "offer"
	typeAnswer    = "answer"
	typeCandidate = "candidate"
	typeMoved     = "moved"
	typeError     = "error"
	typePing      = "ping"
	typePong      = "pong"
	typeBye       = "bye"
)

// frame is a frame from the owner: its members depend on its type.
type frame struct {
	Type        string                   `json:"type"`
	SDP         string                   `json:"sdp"`
	Candidate   *webrtc.ICECandidateInit `json:"candidate"` // nil: end of candidates
	Session     string                   `json:"session"`
	Generation  int64                    `json:"generation"`
	ICEServers  []ICEServer              `json:"ice_servers"`
	PingSeconds float64                  `json:"ping_seconds"`
	RetryMS     int64                    `json:"retry_ms"`
	Code        string                   `json:"code"`
	Message     string                   `json:"message"`
	ReplyTo     string                   `json:"reply_to"`

	Topic     string          `json:"topic"`
	User      string          `json:"user"`
	Epoch     string          `json:"epoch"`
	Offset    int64           `json:"offset"`
	Recovered Recovery        `json:"recovered"`
	Missing   *missingRange   `json:"missing"`
	Data      json.RawMessage `json:"data"`
}

// missingRange has both ends included.
type missingRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func parseFrame(data []byte) (frame, error) {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return frame{}, fmt.Errorf("frame is not the protocol's: %w", err)
	}
	return f, nil
}

// plainFrame is a frame to the owner without members of its own.
type plainFrame struct {
	Type string `json:"type"`
}

type sdpFrame struct {
	Type string `json:"type"`
	ID   string `json:"id,omitempty"`
	SDP  string `json:"sdp"`
}

type candidateFrame struct {
	Type      string                   `json:"type"`
	Candidate *webrtc.ICECandidateInit `json:"candidate"` // null: end of candidates
}
