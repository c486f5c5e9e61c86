package postgres

import (
	"context"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// otherRow is another connected peer of a call, or none (PeerID nil), beside what became of the peer that asks.
type otherRow struct {
	Ended        bool
	Current      bool
	PeerID       *string
	Role         *string
	WorkerID     *string
	ConnectionID *string
	ConnectedAt  *time.Time
}

// OtherPeers reads who else is connected to a call, for a peer that is connected by the connection in peer.ConnectionID.
// berth.ErrStale says that it is not, any more; a Refusal with CodeSessionEnded that the call is over.
func (s *Store) OtherPeers(ctx context.Context, key berth.SessionKey, peer berth.Peer) ([]berth.Peer, error) {
	rows, err := collect[otherRow](ctx, s, "peer_others", int64(key), peer.ID, peer.ConnectionID)
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0 || rows[0].Ended:
		return nil, errSessionEnded()
	case !rows[0].Current:
		return nil, berth.ErrStale
	}
	var others []berth.Peer
	for _, r := range rows {
		if r.PeerID != nil {
			row := peerRow{
				PeerID: *r.PeerID, Role: deref(r.Role), WorkerID: r.WorkerID, ConnectionID: r.ConnectionID, ConnectedAt: r.ConnectedAt,
			}
			others = append(others, row.peer())
		}
	}
	return others, nil
}
