package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

type peerRow struct {
	Session      int64
	PeerID       string
	Role         string
	ConnectionID *string
	ConnectedAt  *time.Time
}

func (s *Store) peers(ctx context.Context, key berth.SessionKey) ([]berth.Peer, error) {
	rows, err := collect[peerRow](ctx, s, "peer_list", []int64{int64(key)})
	peers := make([]berth.Peer, 0, len(rows))
	for _, row := range rows {
		peers = append(peers, berth.Peer{
			ID:           row.PeerID,
			Role:         row.Role,
			ConnectionID: deref(row.ConnectionID),
			ConnectedAt:  deref(row.ConnectedAt),
		})
	}
	return peers, err
}

// AddPeer makes room for one more peer of a live session and returns its placement, which is Created when the peer is
// new. It takes no slot. A peer without an id gets a fresh one. A session that awaits a rejoin is placed anew.
func (s *Store) AddPeer(ctx context.Context, tenantID, id string, peer berth.Peer) (berth.Placement, error) {
	session, err := s.sessionByID(ctx, tenantID, id)
	if err != nil {
		return berth.Placement{}, err
	}
	if session.State == berth.SessionEnded {
		return berth.Placement{}, errSessionEnded()
	}
	peer.ID = cmp.Or(peer.ID, berth.NewID("p"))
	result, err := s.placeAgain(ctx, session, peer)
	result.Placement.Created = result.peerCreated
	return result.Placement, err
}

// ConnectPeer admits a peer's socket on the owner of its session: berth.ErrStale when the placement is history, a
// Refusal with CodeSessionEnded when the session ended.
func (s *Store) ConnectPeer(ctx context.Context, connect berth.Connect) (berth.Connected, error) {
	outcome, err := value[string](ctx, s, "peer_connect", int64(connect.Key), int64(connect.Generation),
		connect.WorkerID, int32(connect.Instance), connect.Peer.ID, connect.Peer.Role, connect.Peer.ConnectionID)
	if err != nil {
		return berth.Connected{}, err
	}
	switch outcome {
	case "connected":
		return s.connected(ctx, connect)
	case "stale":
		return berth.Connected{}, berth.ErrStale
	case "ended":
		return berth.Connected{}, errSessionEnded()
	default:
		return berth.Connected{}, fmt.Errorf("connect_peer answered %q", outcome)
	}
}

func (s *Store) connected(ctx context.Context, connect berth.Connect) (berth.Connected, error) {
	session, err := s.SessionByKey(ctx, connect.Key)
	if err != nil {
		return berth.Connected{}, err
	}
	peers, err := s.peers(ctx, connect.Key)
	if err != nil {
		return berth.Connected{}, err
	}
	others := peers[:0]
	for _, peer := range peers {
		if peer.ID != connect.Peer.ID && peer.ConnectionID != "" {
			others = append(others, peer)
		}
	}
	at, err := value[time.Time](ctx, s, "clock_read")
	return berth.Connected{Session: session, Peers: others, At: at}, err
}

// DisconnectPeer forgets a connection, unless a newer one took its place.
func (s *Store) DisconnectPeer(ctx context.Context, gone berth.Disconnect) error {
	return s.exec(ctx, "peer_disconnect", int64(gone.Key), gone.PeerID, gone.ConnectionID)
}
