package media

import (
	"fmt"
	"strings"

	"github.com/pion/webrtc/v4"
)

// Candidate is an ICE candidate in the form of RTCIceCandidateInit, as browsers send and expect it.
type Candidate struct {
	// Candidate is the candidate-attribute of RFC 8839 section 5.1; empty marks the end of candidates.
	Candidate string `json:"candidate"`
	// SDPMid and SDPMLineIndex name the line; all lines share one transport, so they are informative.
	SDPMid        *string `json:"sdpMid,omitempty"`
	SDPMLineIndex *uint16 `json:"sdpMLineIndex,omitempty"`
	// UsernameFragment is the ICE generation the candidate belongs to, if given.
	UsernameFragment *string `json:"usernameFragment,omitempty"`
}

func fromPion(init webrtc.ICECandidateInit) *Candidate {
	return &Candidate{
		Candidate:        init.Candidate,
		SDPMid:           init.SDPMid,
		SDPMLineIndex:    init.SDPMLineIndex,
		UsernameFragment: init.UsernameFragment,
	}
}

func (c Candidate) toPion() webrtc.ICECandidateInit {
	return webrtc.ICECandidateInit{
		Candidate:        c.Candidate,
		SDPMid:           c.SDPMid,
		SDPMLineIndex:    c.SDPMLineIndex,
		UsernameFragment: c.UsernameFragment,
	}
}

// validate refuses what no candidate can look like: 64 of them are kept for each peer.
func (c Candidate) validate() error {
	size := len(c.Candidate)
	for _, member := range []*string{c.SDPMid, c.UsernameFragment} {
		if member != nil {
			size += len(*member)
		}
	}
	if size > maxCandidateBytes {
		return fmt.Errorf("%w: longer than %d bytes", ErrBadCandidate, maxCandidateBytes)
	}
	return nil
}

// ufrag returns the ICE generation: the member, or the extension of the attribute, or nothing.
func (c Candidate) ufrag() string {
	if c.UsernameFragment != nil && *c.UsernameFragment != "" {
		return *c.UsernameFragment
	}
	fields := strings.Fields(c.Candidate)
	for i := 0; i+1 < len(fields); i++ {
		if fields[i] == "ufrag" {
			return fields[i+1]
		}
	}
	return ""
}

// remoteCandidates decides which candidates of the client are applied now, which wait for a
// description, and which are too many. The goroutine of the session owns it.
type remoteCandidates struct {
	ufrags  map[string]bool // of the description in force; nil before the first
	early   []Candidate
	applied int
}

// admit returns whether c is to be applied now. Otherwise it is kept, or refused with an error.
func (r *remoteCandidates) admit(c Candidate) (bool, error) {
	if r.ufrags == nil || !r.matches(c) {
		if len(r.early) >= maxEarlyCandidates {
			return false, fmt.Errorf("%w: %d before their description", ErrTooManyCandidates, maxEarlyCandidates)
		}
		r.early = append(r.early, c)
		return false, nil
	}
	if r.applied >= maxRemoteCandidates {
		return false, fmt.Errorf("%w: %d for one description", ErrTooManyCandidates, maxRemoteCandidates)
	}
	r.applied++
	return true, nil
}

// describe starts the generation of a new description and returns the candidates that waited for it.
// Those of other generations are dropped.
func (r *remoteCandidates) describe(ufrags map[string]bool) []Candidate {
	r.ufrags, r.applied = ufrags, 0
	var ready []Candidate
	for _, c := range r.early {
		if r.matches(c) {
			ready = append(ready, c)
		}
	}
	r.early, r.applied = nil, len(ready)
	return ready
}

func (r *remoteCandidates) matches(c Candidate) bool {
	ufrag := c.ufrag()
	return ufrag == "" || r.ufrags[ufrag]
}
