package worker

import (
	"context"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Registry is the database as a worker needs it. Errors that wrap berth.ErrUnavailable may be repeated.
type Registry interface {
	// NextInstance draws the number of this start.
	NextInstance(ctx context.Context) (berth.Instance, error)

	// Presence opens the connection that holds the instance's lock.
	Presence(ctx context.Context, instance berth.Instance) (berth.Presence, error)

	// Register introduces the instance. held means that the old instance of the id is present and its lease current:
	// ask again shortly.
	Register(ctx context.Context, r berth.Registration) (held bool, err error)

	// Open displaces the old instance's sessions, makes the slots and lets claims in. berth.ErrStale: a newer
	// instance registered meanwhile.
	Open(ctx context.Context, workerID string, instance berth.Instance) error

	// Renew extends the lease and answers what the worker should know.
	Renew(ctx context.Context, r berth.Renewal) (berth.RenewalAnswer, error)

	// Reconcile compares what the worker serves with what it should and returns what it should drop.
	Reconcile(ctx context.Context, workerID string, instance berth.Instance, held []berth.Held) ([]berth.Dropped, error)

	// Drain stops claims on the worker. The first deadline stands.
	Drain(ctx context.Context, workerID string, instance berth.Instance, deadline time.Duration) error

	// Leave is a clean goodbye. What is still placed here is displaced.
	Leave(ctx context.Context, workerID string, instance berth.Instance) error

	// ConnectPeer admits a peer. berth.ErrStale: the placement is history.
	ConnectPeer(ctx context.Context, c berth.Connect) (berth.Connected, error)

	// OtherPeers reads who else is connected to a call. berth.ErrStale: the peer's connection is not the one that counts.
	OtherPeers(ctx context.Context, key berth.SessionKey, peer berth.Peer) ([]berth.Peer, error)

	// DisconnectPeer tells that a connection is gone.
	DisconnectPeer(ctx context.Context, d berth.Disconnect) error

	// EndSessions ends sessions that are still at the generation named.
	EndSessions(ctx context.Context, ends []berth.End) error

	// Displace gives up sessions: they wait for a rejoin, or end if they asked for that. Nil keys mean all that are
	// placed here, also those that nobody connected to.
	Displace(ctx context.Context, workerID string, instance berth.Instance, keys []berth.SessionKey) error
}
