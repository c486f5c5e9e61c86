package api

import (
	"context"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Sessions reads, ends and moves sessions. Methods return *berth.Refusal for what the caller should know (not_found,
// conflict, session_ended, at_capacity) and errors that wrap berth.ErrUnavailable when the outcome is unknown.
type Sessions interface {
	// Session returns the newest session of that id, live or ended within 24 hours, its peers in the order in which
	// they were added, and the database's clock.
	Session(ctx context.Context, tenantID, id string) (berth.Session, []berth.Peer, error)
	// SessionByKey returns one session row.
	SessionByKey(ctx context.Context, key berth.SessionKey) (berth.Session, error)
	// ListSessions returns at most filter.Limit sessions, newest first.
	ListSessions(ctx context.Context, filter berth.SessionFilter) ([]berth.Session, error)
	// EndSession ends a session with berth.EndedDeleted and returns the row as it was before: its owner must be told.
	// A session that ended already is returned with State ended.
	EndSession(ctx context.Context, tenantID, id string) (berth.Session, error)
	// AddPeer adds a peer, or finds the one that has the id already (Created is false then). One without an id is new.
	AddPeer(ctx context.Context, tenantID, id string, peer berth.Peer) (berth.Placement, error)
	// Rejoin answers the current placement, places anew, or says that the owner is in question.
	Rejoin(ctx context.Context, rejoin berth.Rejoin) (berth.RejoinAnswer, error)
}

// Workers reads and drains workers. An unknown id is a not_found Refusal.
type Workers interface {
	// Workers returns every known worker, in any order.
	Workers(ctx context.Context) ([]berth.Worker, error)
	Worker(ctx context.Context, id string) (berth.Worker, error)
	// DrainWorker returns once no claim can land on the worker. The first deadline stands unless override is set.
	DrainWorker(ctx context.Context, id string, deadline time.Duration, override bool) (berth.Worker, error)
	UndrainWorker(ctx context.Context, id string) (berth.Worker, error)
	// OrderShed has the current instance, or the one that is named, close connections with its next renewal.
	OrderShed(ctx context.Context, id string, instance berth.Instance, order berth.ShedOrder) error
}

// Events reads the history of sessions.
type Events interface {
	// Events returns at most filter.Limit events after filter.After, oldest first, and only such that no older one can
	// become visible any more.
	Events(ctx context.Context, filter berth.EventFilter) ([]berth.Event, error)
	// EventsEnd returns the newest position that Events would return: where to begin for who wants what comes.
	EventsEnd(ctx context.Context) (berth.Position, error)
}

// Capacity sums up the workers.
type Capacity interface {
	// Capacity returns every region that is configured, has workers or is waited for, in any order.
	Capacity(ctx context.Context) ([]berth.RegionCapacity, error)
}

// Database is asked by /readyz whether it answers, and which time it is.
type Database interface {
	Ping(ctx context.Context) error
	Clock(ctx context.Context) (time.Time, error)
}

// Waker starts a look at the workers now, without waiting for it.
type Waker interface {
	Wake()
}

// Refusals counts what was refused for want of slots or quota, for the view berth.rejections. Record does not block.
type Refusals interface {
	Record(tenantID, region string, code berth.Code)
}
