package berth

import (
	"math"
	"net/http"
	"time"
)

// Backoff of calls: full jitter over a window that doubles.
const (
	callBackoffBase = 500 * time.Millisecond
	callBackoffCap  = 8 * time.Second
	callJitter      = 0.25 // added on top, so that callers who were told the same time do not return together
)

// outcome is what decide knows about an attempt that did not succeed.
type outcome struct {
	retries    int           // retries made before this attempt, without those that only asked whether it is done
	status     int           // 0: no answer, a connection error
	code       Code          // of the problem document, if there was one
	override   string        // the Berth-Should-Retry field: "true", "false" or empty
	retryAfter time.Duration // 0: the server named no time
	inFlight   bool          // an earlier attempt is being worked on: asking again gets its answer, and is no retry
	remaining  time.Duration // until the caller's deadline, or until asking is of no use; forever: none
}

// retryLimits are the caller's bounds.
type retryLimits struct {
	maxRetries int
	maxWait    time.Duration
}

// decide says whether to try again, and after how long. backoff and spread are uniform in [0, 1).
func decide(o outcome, limits retryLimits, backoff, spread float64) (wait time.Duration, again bool) {
	if o.retries >= limits.maxRetries || !worthRetry(o) || o.retryAfter > limits.maxWait {
		return 0, false
	}
	own := scale(window(callBackoffBase, callBackoffCap, o.retries), backoff)
	wait = scale(max(o.retryAfter, min(own, limits.maxWait)), 1+callJitter*spread)
	return wait, wait < o.remaining
}

// worthRetry reports whether another attempt could end differently.
func worthRetry(o outcome) bool {
	switch o.override {
	case "true":
		return true
	case "false":
		return false
	}
	if o.status == http.StatusTooManyRequests {
		// Only the rate of starts passes with time. concurrent_sessions lasts until a session ends.
		return o.code == CodeSessionStartRateLimited
	}
	return o.status == 0 || o.inFlight || retryableStatus(o.status)
}

// retryableStatus reports whether a status by itself promises that a later attempt may succeed.
func retryableStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// window is base doubled n times, at most limit.
func window(base, limit time.Duration, n int) time.Duration {
	w := base
	for range n {
		if w >= limit {
			return limit
		}
		w *= 2
	}
	return min(w, limit)
}

// scale multiplies a wait by a factor, saturating.
func scale(d time.Duration, factor float64) time.Duration {
	f := float64(d) * factor
	if f >= math.MaxInt64 {
		return forever
	}
	return time.Duration(f)
}

// add sums two waits, saturating.
func add(a, b time.Duration) time.Duration {
	if a > forever-b {
		return forever
	}
	return a + b
}
