package worker

import (
	"context"
	"errors"

	"github.com/berthdev/berth/internal/berth"
)

// directory is the registry as signaling sees it: in the name of the current instance.
type directory struct {
	registry Registry
	workerID string
	status   *status
	nudge    func()
}

// ConnectPeer implements signaling.Directory. A stale answer may mean that the worker itself is history, so it asks.
func (d *directory) ConnectPeer(ctx context.Context, held berth.Held, peer berth.Peer) (berth.Connected, error) {
	connected, err := d.registry.ConnectPeer(ctx, berth.Connect{
		Held: held, WorkerID: d.workerID, Instance: d.status.load().instance, Peer: peer,
	})
	if errors.Is(err, berth.ErrStale) {
		d.nudge()
	}
	return connected, err
}

// OtherPeers implements signaling.Directory.
func (d *directory) OtherPeers(ctx context.Context, held berth.Held, peer berth.Peer) ([]berth.Peer, error) {
	return d.registry.OtherPeers(ctx, held.Key, peer)
}

// DisconnectPeer implements signaling.Directory.
func (d *directory) DisconnectPeer(ctx context.Context, gone berth.Disconnect) error {
	return d.registry.DisconnectPeer(ctx, gone)
}

// EndSessions implements signaling.Directory.
func (d *directory) EndSessions(ctx context.Context, ends []berth.End) error {
	return d.registry.EndSessions(ctx, ends)
}
