package postgres

import (
	"context"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// otherRequest asks for the other peers of a call.
type otherRequest struct {
	key  berth.SessionKey
	peer berth.Peer
}

// otherRow is another connected peer of a call, or none (PeerID nil), beside what became of the peer that asks.
type otherRow struct {
	Ord          int
	Ended        bool
	Current      bool
	PeerID       *string
	Role         *string
	UserID       *string
	WorkerID     *string
	ConnectionID *string
	ConnectedAt  *time.Time
}

// OtherPeers reads who else is connected to a call, for a peer that is connected by the connection in peer.ConnectionID.
// berth.ErrStale says that it is not, any more; a Refusal with CodeSessionEnded that the call is over. All calls of a worker
// ask at once when a topic's history was lost, so those that come together share a statement; see batcher.
func (s *Store) OtherPeers(ctx context.Context, key berth.SessionKey, peer berth.Peer) ([]berth.Peer, error) {
	return s.others.do(ctx, otherRequest{key: key, peer: peer})
}

// othersBatch is the batch of OtherPeers.
func (s *Store) othersBatch(ctx context.Context, requests []otherRequest) ([]verdict[[]berth.Peer], error) {
	keys, peers, connections := make([]int64, len(requests)), make([]string, len(requests)), make([]string, len(requests))
	for i, r := range requests {
		keys[i], peers[i], connections[i] = int64(r.key), r.peer.ID, r.peer.ConnectionID
	}
	rows, err := collect[otherRow](ctx, s, "peer_others", keys, peers, connections)
	if err != nil {
		return nil, err
	}
	verdicts := make([]verdict[[]berth.Peer], len(requests))
	for _, r := range rows {
		v := &verdicts[r.Ord-1]
		switch {
		case r.Ended:
			v.err = errSessionEnded()
		case !r.Current:
			v.err = berth.ErrStale
		case r.PeerID != nil:
			row := peerRow{
				PeerID: *r.PeerID, Role: deref(r.Role), UserID: r.UserID, WorkerID: r.WorkerID, ConnectionID: r.ConnectionID,
				ConnectedAt: r.ConnectedAt,
			}
			v.result = append(v.result, row.peer())
		}
	}
	return verdicts, nil
}
