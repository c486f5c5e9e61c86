package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// eventPage is how many events a stream holds in memory at once.
const eventPage = 200

// follow says which events a stream sends.
type follow struct {
	filter berth.EventFilter // After is what was read last
	sent   berth.Position    // what the client has already, of a history that is read from its beginning
	ends   bool              // a session's: it ends after the session did
}

// SessionEvents serves GET /v1/sessions/{id}/events.
func (s *service) SessionEvents(w http.ResponseWriter, r *http.Request, id wire.SessionID, params wire.SessionEventsParams) {
	s.stream(w, r, func(ctx context.Context) (follow, error) { return s.followSession(ctx, r.Header, id, params) })
}

// followSession goes on after the client's last event, or begins with the session. Of a session that ended it reads all,
// so that it knows whether the client has the end too.
func (s *service) followSession(ctx context.Context, header http.Header, id string, params wire.SessionEventsParams) (follow, error) {
	var c checks
	last := value(c.lastEvent(header, params.LastEventID), berth.Position{})
	if err := c.err(); err != nil {
		return follow{}, err
	}
	tenantID, err := addressed(callerOf(ctx), id, params.Tenant)
	if err != nil {
		return follow{}, err
	}
	session, _, err := s.deps.Sessions.Session(ctx, tenantID, id)
	if err != nil {
		return follow{}, err
	}
	f := follow{filter: berth.EventFilter{TenantID: tenantID, Key: session.Key, Limit: eventPage}, ends: true}
	if session.State == berth.SessionEnded {
		f.sent = last
	} else {
		f.filter.After = last
	}
	return f, nil
}

// Events serves GET /v1/events.
func (s *service) Events(w http.ResponseWriter, r *http.Request, params wire.EventsParams) {
	s.stream(w, r, func(ctx context.Context) (follow, error) { return s.followAll(ctx, r.Header, params) })
}

func (s *service) followAll(ctx context.Context, header http.Header, params wire.EventsParams) (follow, error) {
	var c checks
	last := c.lastEvent(header, params.LastEventID)
	c.require(params.From == nil || params.From.Valid(), "from", "must be now or start")
	tenantID, err := c.tenant(callerOf(ctx), params.Tenant)
	if err != nil {
		return follow{}, err
	}
	if err := c.err(); err != nil {
		return follow{}, err
	}
	f := follow{filter: berth.EventFilter{TenantID: tenantID, Limit: eventPage}}
	switch {
	case last != nil:
		f.filter.After = *last
	case value(params.From, wire.FromNow) == wire.FromNow:
		f.filter.After, err = s.deps.Events.EventsEnd(ctx)
	}
	return f, err
}

// writeEvent appends one event in the format of WHATWG HTML section 9.2.5. JSON holds no line breaks.
func writeEvent(page *bytes.Buffer, event berth.Event, withTenant bool) error {
	answer := wire.Event{SessionID: event.SessionID, Type: event.Type, At: event.At.UTC(), Data: event.Data}
	if withTenant {
		answer.TenantID = &event.TenantID
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", formatPosition(event.Position), err)
	}
	_, err = fmt.Fprintf(page, "id: %s\nevent: %s\ndata: %s\n\n", formatPosition(event.Position), event.Type, data)
	return err
}
