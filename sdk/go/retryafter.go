package berth

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// forever is where a wait saturates: about 292 years, the longest time.Duration.
const forever = time.Duration(math.MaxInt64)

// parseRetryAfter reads the Retry-After field, RFC 9110 section 10.2.3. It returns false where the field says nothing
// that can be waited for: absent, zero, a time that has passed, a sign, a fraction, or anything else that is neither
// delay-seconds nor an HTTP date. A number too large for a Duration saturates.
//
// Dates are measured from the answer's own Date field, if it has one, so that the two clocks need not agree; else from
// now.
func parseRetryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if digitsOnly(value) {
		d := secondsDuration(value)
		return d, d > 0
	}
	at, ok := parseHTTPDate(value, now)
	if !ok {
		return 0, false
	}
	if date, ok := parseHTTPDate(header.Get("Date"), now); ok {
		now = date
	}
	d := at.Sub(now) // saturates by itself
	return max(d, 0), d > 0
}

func digitsOnly(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// secondsDuration converts decimal digits to a Duration, saturating.
func secondsDuration(digits string) time.Duration {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > int64(forever/time.Second) {
		return forever
	}
	return time.Duration(n) * time.Second
}

// parseHTTPDate accepts the three forms of RFC 9110 section 5.6.7: IMF-fixdate, RFC 850 and asctime. A two-digit year
// that appears to be more than 50 years in the future is in the past.
func parseHTTPDate(value string, now time.Time) (time.Time, bool) {
	if t, err := time.Parse(http.TimeFormat, value); err == nil {
		return t, true
	}
	if t, err := time.Parse(time.ANSIC, value); err == nil {
		return t, true
	}
	// The zone must read GMT: time.Parse would take any other abbreviation for an offset of zero.
	t, err := time.Parse("Monday, 02-Jan-06 15:04:05 GMT", value)
	if err != nil {
		return time.Time{}, false
	}
	century := now.UTC().Year() / 100 * 100
	year := century + t.Year()%100
	if year > now.UTC().Year()+50 {
		year -= 100
	}
	return t.AddDate(year-t.Year(), 0, 0), true
}
