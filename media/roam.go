package media

import (
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/stun/v4"
	"github.com/pion/webrtc/v4"
)

const (
	// roamAfter is how long the selected address must be silent before another takes over. It is above
	// the 2.5 s at which browsers check a working path.
	roamAfter = 3 * time.Second
	// maxRemotes bounds the source addresses remembered for one peer.
	maxRemotes = 64
)

// roamer keeps the media of a client whose source address changed. ICE has the client nominate a new
// path, but a client behind a NAT that rebinds does not know that it moved, and Pion as the
// controlled side takes a new path only if its priority is higher, which a peer-reflexive one never has.
// So: an authenticated check from another address wins once the selected one is silent.
type roamer struct {
	selected atomic.Value // string, remote address of the selected pair
	// remotes is used by the goroutine of the ICE agent alone.
	remotes map[string]sighting
}

// sighting is what is known of a remote address: its candidate and its last check.
type sighting struct {
	candidate ice.Candidate
	checked   time.Time
}

func newRoamer() *roamer { return &roamer{remotes: make(map[string]sighting)} }

// onSelected learns which path is in use.
func (r *roamer) onSelected(pair *webrtc.ICECandidatePair) {
	if pair != nil && pair.Remote != nil {
		r.selected.Store(hostPort(pair.Remote.Address, int(pair.Remote.Port)))
	}
}

// onBindingRequest is called for each authenticated check and returns whether to use its path.
func (r *roamer) onBindingRequest(_ *stun.Message, _, remote ice.Candidate, _ *ice.CandidatePair) bool {
	address := hostPort(remote.Address(), remote.Port())
	if len(r.remotes) >= maxRemotes {
		clear(r.remotes)
	}
	r.remotes[address] = sighting{candidate: remote, checked: time.Now()}
	selected, _ := r.selected.Load().(string)
	if selected == "" || selected == address {
		return false
	}
	current, ok := r.remotes[selected]
	return ok && current.silent()
}

// silent reports whether neither checks nor media came from the address lately.
func (s sighting) silent() bool {
	return time.Since(s.checked) > roamAfter && time.Since(s.candidate.LastReceived()) > roamAfter
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
