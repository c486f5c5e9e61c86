package api

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berthdev/berth/internal/berth"
)

// Limits of a page of a list.
const (
	defaultPage = 50
	maxPage     = 200
)

// pageLimit checks a list's limit.
func (c *checks) pageLimit(limit *int) int {
	size := value(limit, defaultPage)
	c.require(size >= 1 && size <= maxPage, "limit", "must be an integer from 1 to 200")
	return size
}

// Cursors are the last item's key under a version, so that a cursor of another list or release is refused, not misread.
const (
	cursorSessions = "s1."
	cursorWorkers  = "w1."
)

func encodeCursor(version, position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(version + position))
}

// cursor returns the position in a cursor, "" for none.
func (c *checks) cursor(version string, cursor *string) string {
	if cursor == nil {
		return ""
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(*cursor)
	position, ok := strings.CutPrefix(string(text), version)
	ok = ok && err == nil && position != ""
	c.require(ok, "cursor", "must be the next_cursor of a page of this list")
	if !ok {
		return ""
	}
	return position
}

// sessionCursor is cursor for lists of sessions, which continue below a key.
func (c *checks) sessionCursor(cursor *string) berth.SessionKey {
	position := c.cursor(cursorSessions, cursor)
	if position == "" {
		return 0
	}
	key, err := strconv.ParseInt(position, 10, 64)
	c.require(err == nil && key > 0, "cursor", "must be the next_cursor of a page of this list")
	return berth.SessionKey(key)
}

// cut splits what was read with one more than the limit into the page and whether more follows.
func cut[T any](items []T, limit int) (page []T, more bool) {
	if len(items) > limit {
		return items[:limit], true
	}
	return items, false
}

// wellFormedQuery refuses a query string that cannot be decoded: dropping a filter would widen the answer.
func (s *service) wellFormedQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			s.refuse(w, r, berth.Invalid("query", "must be percent-encoded name=value pairs joined by &"))
			return
		}
		// Integers are plain digits, as in bodies; the generated code would take +1 and 01.
		if limit := query.Get("limit"); strings.HasPrefix(limit, "+") || len(limit) > 1 && limit[0] == '0' {
			s.refuse(w, r, berth.Invalid("limit", "must be one integer from 1 to 200"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
