package api

import (
	"net/http"
	"net/netip"

	"golang.org/x/time/rate"

	"github.com/berthdev/berth/internal/address"
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
// what others need.
type strangers struct {
	all       *rate.Limiter
	addresses *address.Table[*rate.Limiter]
	trusted   []netip.Prefix // proxies
}

func newStrangers(trusted []netip.Prefix) *strangers {
	return &strangers{
		all:       rate.NewLimiter(strangersRate, strangersBurst),
		addresses: address.NewTable[*rate.Limiter](maxAddresses),
		trusted:   trusted,
	}
}

// allow takes a token of the caller's address and one of the process, in this order.
func (s *strangers) allow(r *http.Request) (allowed bool) {
	s.addresses.Change(address.Client(r, s.trusted), func(limiter *rate.Limiter) *rate.Limiter {
		if limiter == nil {
			limiter = rate.NewLimiter(addressRate, addressBurst)
		}
		allowed = limiter.Allow()
		return limiter
	})
	return allowed && s.all.Allow()
}
