package api

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Names of the quotas in RateLimit fields.
const (
	quotaSessions = `"concurrent_sessions"`
	quotaStarts   = `"starts"`
)

// maxInteger is the largest integer of a structured field (RFC 8941 section 3.3.1).
const maxInteger = 999_999_999_999_999

// tellQuotas sets RateLimit-Policy and RateLimit by draft-ietf-httpapi-ratelimit-headers-11, for the quotas that the
// tenant has.
func tellQuotas(header http.Header, limits berth.Limits, err error) {
	var policies, left []string
	if most := limits.MaxConcurrent; most != nil {
		policies = append(policies, fmt.Sprintf("%s;q=%d", quotaSessions, max(0, *most)))
		left = append(left, fmt.Sprintf("%s;r=%d", quotaSessions, max(0, *most-limits.Live)))
	}
	if limits.StartRate > 0 {
		burst := max(1, limits.StartBurst)
		policies = append(policies, fmt.Sprintf("%s;q=%d;w=%d", quotaStarts, burst, wholeSeconds(float64(burst)/limits.StartRate)))
		left = append(left, startsLeft(limits, err))
	}
	if len(policies) > 0 {
		header.Set("RateLimit-Policy", strings.Join(policies, ", "))
		header.Set("RateLimit", strings.Join(left, ", "))
	}
}

// startsLeft is the item of the starts that are left. Its t is the time in which the tenant can start no more than
// those: until the next token. A refusal for another reason leaves it out, since Retry-After must not come before it
// (section 6) and has nothing to do with it.
func startsLeft(limits berth.Limits, err error) string {
	left := max(0, math.Floor(limits.Tokens))
	item := fmt.Sprintf("%s;r=%.0f", quotaStarts, left)
	if full := left >= float64(limits.StartBurst); full || err != nil && left > 0 {
		return item
	}
	return fmt.Sprintf("%s;t=%d", item, wholeSeconds(nextToken(limits)))
}

// nextToken is the time until the tenant may start one session more than now, in seconds.
func nextToken(limits berth.Limits) float64 {
	return (math.Floor(max(0, limits.Tokens)) + 1 - limits.Tokens) / limits.StartRate
}

// wholeSeconds rounds up to an integer of structured fields, 1 at least.
func wholeSeconds(seconds float64) int64 {
	return int64(min(max(1, math.Ceil(seconds)), maxInteger))
}

// notBeforeToken moves a refusal's time to return, where it has one, to when the tenant has a start left: earlier it
// would be refused for its rate.
func notBeforeToken(refusal berth.Refusal, limits berth.Limits) *berth.Refusal {
	limited := refusal.Code == berth.CodeStartRateLimited
	if limits.StartRate > 0 && limits.Tokens < 1 && (limited || refusal.RetryAfter > 0) {
		next := min(nextToken(limits), time.Hour.Seconds()) // a float of any size is no Duration
		refusal.RetryAfter = max(refusal.RetryAfter, time.Duration(next*float64(time.Second)))
	}
	return &refusal
}
