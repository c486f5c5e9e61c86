package signaling

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/berthdev/berth/internal/address"
)

const (
	// retryAfterSeconds is the window over which refused callers are spread.
	retryAfterSeconds = 8
	// maxAddresses bounds how many addresses one generation remembers.
	maxAddresses = 1 << 15
)

// door refuses by HTTP status, before the upgrade. In a storm it refuses thousands a second, so an answer is made of
// parts that exist already.
type door struct {
	process    *rate.Limiter
	addresses  *address.Table[bucket] // nil: no limit
	perAddress pace
	trusted    []netip.Prefix
	most       int64 // connections; zero: no limit
	inside     atomic.Int64
	metrics    *metrics

	later [retryAfterSeconds][]string // values of Retry-After
	plain []string                    // value of Content-Type
	close []string                    // value of Connection
}

func newDoor(config Config, m *metrics) *door {
	d := &door{
		process: rate.NewLimiter(rate.Limit(config.UpgradeRate), config.UpgradeBurst),
		trusted: config.TrustedProxies,
		most:    int64(config.MaxConnections),
		metrics: m,
		plain:   []string{"text/plain; charset=utf-8"},
		close:   []string{"close"},
	}
	if per := config.UpgradeRatePerAddress; per > 0 {
		d.addresses = address.NewTable[bucket](maxAddresses)
		d.perAddress = pace{rate: per, burst: max(1, 2*per)}
	}
	for i := range d.later {
		d.later[i] = []string{strconv.Itoa(1 + i)}
	}
	return d
}

// paced takes a token of the caller's address and one of the process, in this order: an address that asks too often must
// not use up what others need.
func (d *door) paced(w http.ResponseWriter, r *http.Request) bool {
	if d.addresses != nil && !d.allows(address.Client(r, d.trusted), time.Now()) {
		d.refuse(w, "address", http.StatusTooManyRequests,
			"too many connections from this address; if it is a proxy's, name it in BERTH_TRUSTED_PROXIES\n")
		return false
	}
	if !d.process.Allow() {
		d.refuse(w, "rate", http.StatusServiceUnavailable, "too many connections at once\n")
		return false
	}
	return true
}

// allows takes a token of an address, if it has one.
func (d *door) allows(from netip.Addr, now time.Time) (allowed bool) {
	d.addresses.Change(from, func(b bucket) bucket {
		b = d.perAddress.refill(b, now)
		if allowed = b.tokens >= 1; allowed {
			b.tokens--
		}
		return b
	})
	return allowed
}

// enter counts one more connection, unless there are as many as may be. On success the caller must call leave.
func (d *door) enter(w http.ResponseWriter) bool {
	if inside := d.inside.Add(1); d.most > 0 && inside > d.most {
		d.leave()
		d.refuse(w, "connections", http.StatusServiceUnavailable, "this worker has as many connections as it may\n")
		return false
	}
	return true
}

func (d *door) leave() { d.inside.Add(-1) }

// refuse answers and has the connection closed, because its file is needed for somebody else. Who may come again is
// told when.
func (d *door) refuse(w http.ResponseWriter, reason string, status int, text string) {
	d.metrics.refused(reason)
	header := w.Header()
	header["Content-Type"], header["Connection"] = d.plain, d.close
	if status != http.StatusForbidden {
		header["Retry-After"] = d.later[rand.IntN(retryAfterSeconds)]
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // because a caller that hung up needs no answer
}
