package api

import (
	"cmp"
	"net/http"
	"regexp"
	"strconv"

	"github.com/berthdev/berth/internal/berth"
)

// positionPattern is the form of an event's id, "<xid>-<id>" in plain digits. Clients are told that it is opaque.
var positionPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,18})$`)

const reasonPosition = "must be the id of an event of this stream, once"

func formatPosition(p berth.Position) string {
	return strconv.FormatUint(p.XID, 10) + "-" + strconv.FormatInt(p.ID, 10)
}

func parsePosition(text string) (p berth.Position, ok bool) {
	parts := positionPattern.FindStringSubmatch(text)
	if parts == nil {
		return p, false
	}
	xid, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return p, false
	}
	id, err := strconv.ParseInt(parts[2], 10, 64)
	return berth.Position{XID: xid, ID: id}, err == nil
}

func comparePositions(a, b berth.Position) int {
	return cmp.Or(cmp.Compare(a.XID, b.XID), cmp.Compare(a.ID, b.ID))
}

// later is the later one of two positions.
func later(a, b berth.Position) berth.Position {
	if comparePositions(a, b) < 0 {
		return b
	}
	return a
}

// lastEvent returns the position that a client goes on after, nil for one that begins. An EventSource that reconnects
// sends the header and the query that it began with, so the header wins. Empty is what a client has that got no event.
func (c *checks) lastEvent(header http.Header, query *string) *berth.Position {
	const name = "Last-Event-ID"
	if values := header.Values(name); len(values) > 0 && values[0] != "" {
		position, ok := parsePosition(values[0])
		c.require(ok && len(values) == 1, name, reasonPosition)
		return &position
	}
	if query == nil || *query == "" {
		return nil
	}
	position, ok := parsePosition(*query)
	c.require(ok, "last_event_id", reasonPosition)
	return &position
}
