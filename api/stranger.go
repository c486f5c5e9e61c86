package api

import (
	"net/http"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// strangersRate and strangersBurst bound the secrets that are looked up in the database, per second.
	strangersRate  = 100
	strangersBurst = 500
	// addressRate and addressBurst bound those of one address, behind which a whole site may be: each of its workers is a
	// stranger once.
	addressRate  = 10
	addressBurst = 50
	// maxAddresses bounds how many addresses one generation remembers.
	maxAddresses = 10_000
)

// strangers limits callers that have not proved themselves, by address and all together, so that none of them uses up
// what others need. Its memory is bounded: when a generation is full, the one before is forgotten, so that an address
// which nobody saw for that long starts afresh.
type strangers struct {
	all     *rate.Limiter
	address func(*http.Request) netip.Addr // whom a request counts for

	mu            sync.Mutex
	recent, older map[netip.Addr]*rate.Limiter
}

func newStrangers(address func(*http.Request) netip.Addr) *strangers {
	return &strangers{
		all: rate.NewLimiter(strangersRate, strangersBurst), address: address, recent: make(map[netip.Addr]*rate.Limiter),
	}
}

// allow takes a token of the caller's address and one of the process, in this order.
func (s *strangers) allow(r *http.Request) bool { return s.of(s.address(r)).Allow() && s.all.Allow() }

func (s *strangers) of(address netip.Addr) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limiter, known := s.recent[address]; known {
		return limiter
	}
	limiter, known := s.older[address]
	if !known {
		limiter = rate.NewLimiter(addressRate, addressBurst)
	}
	if len(s.recent) >= maxAddresses {
		s.recent, s.older = make(map[netip.Addr]*rate.Limiter), s.recent
	}
	s.recent[address] = limiter
	return limiter
}

// remoteNetwork is the network that a connection comes from: an address of IPv4, a /64 of IPv6, since one host has that
// many. Workers reach the API as they are, or through balancers that may be given more than one address.
func remoteNetwork(r *http.Request) netip.Addr {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr) // without an address the callers are one
	address := remote.Addr().Unmap().WithZone("")
	if !address.Is6() {
		return address
	}
	prefix, _ := address.Prefix(64) // 64 bits are no error for IPv6
	return prefix.Addr()
}
