package api

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// One element of a Prefer field (RFC 7240 section 2): a name, perhaps a value, and parameters that nobody here reads.
const (
	prefToken = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	prefWord  = `(?:` + prefToken + `|"(?:[^"\\]|\\.)*")`
	prefBlank = `[\t ]*`
)

var preferencePattern = regexp.MustCompile(
	`^` + prefBlank +
		`(?:(` + prefToken + `)(?:` + prefBlank + `=` + prefBlank + `(` + prefWord + `))?` +
		`(?:` + prefBlank + `;` + prefBlank + `(?:` + prefToken + `(?:` + prefBlank + `=` + prefBlank + prefWord + `)?)?)*)?` +
		prefBlank + `(,|$)`,
)

// waitPattern is what wait may be: seconds as plain digits.
var waitPattern = regexp.MustCompile(`^(0|[1-9][0-9]?)$`)

const reasonPrefer = "must be wait=N with a whole number of seconds from 0 to 30, besides preferences that are ignored"

// preferredWait returns how long a start may queue for room by its Prefer fields, zero when they say nothing about it.
// RFC 7240 lets a server ignore what it does not understand, but a client whose wait is dropped would be refused at once
// and never know why. Of two waits the first counts, as section 2 says.
func preferredWait(header http.Header) (wait time.Duration, ok bool) {
	rest, found := strings.Join(header.Values("Prefer"), ","), false
	for rest != "" {
		element := preferencePattern.FindStringSubmatch(rest)
		if element == nil {
			return 0, false
		}
		rest = rest[len(element[0]):]
		if found || !strings.EqualFold(element[1], "wait") {
			continue
		}
		found = true
		if wait, ok = waitSeconds(element[2]); !ok {
			return 0, false
		}
	}
	return wait, true
}

func waitSeconds(word string) (wait time.Duration, ok bool) {
	digits := strings.Trim(word, `"`)
	if !waitPattern.MatchString(digits) {
		return 0, false
	}
	seconds, err := strconv.Atoi(digits)
	wait = time.Duration(seconds) * time.Second
	return wait, err == nil && wait <= berth.MaxWait
}

// wait checks the Prefer fields of a start.
func (c *checks) wait(header http.Header) time.Duration {
	wait, ok := preferredWait(header)
	c.require(ok, "Prefer", reasonPrefer)
	return wait
}

// limitStart is limitTime for starts, which take as much longer as they prefer to wait.
func (s *service) limitStart(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait, _ := preferredWait(r.Header) // one that is wrong is refused later, by its name
		limitTime(s.cfg.RequestTimeout+wait)(next).ServeHTTP(w, r)
	})
}
