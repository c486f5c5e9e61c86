package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

type peerRow struct {
	Session      int64
	PeerID       string
	Role         string
	UserID       *string
	WorkerID     *string
	ConnectionID *string
	ConnectedAt  *time.Time
}

func (r peerRow) peer() berth.Peer {
	return berth.Peer{
		ID: r.PeerID, Role: r.Role, User: deref(r.UserID), WorkerID: deref(r.WorkerID),
		ConnectionID: deref(r.ConnectionID), ConnectedAt: deref(r.ConnectedAt),
	}
}

func (s *Store) peers(ctx context.Context, key berth.SessionKey) ([]berth.Peer, error) {
	rows, err := collect[peerRow](ctx, s, "peer_list", []int64{int64(key)})
	peers := make([]berth.Peer, 0, len(rows))
	for _, row := range rows {
		peers = append(peers, row.peer())
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
	result.placement.Created = result.peerCreated
	return result.placement, err
}

// ConnectPeer admits a peer's socket on the owner of its session: berth.ErrStale when the placement is history, a
// Refusal with CodeSessionEnded when the session ended. Those of one worker share a statement; see batcher.
func (s *Store) ConnectPeer(ctx context.Context, connect berth.Connect) (berth.Connected, error) {
	return s.connects.do(ctx, connect)
}

type connectRow struct {
	Ord     int
	Outcome string
	Again   bool
	At      time.Time
}

// connectBatch is the connections' batch. The first peer of a session makes it active.
func (s *Store) connectBatch(ctx context.Context, requests []berth.Connect) ([]verdict[berth.Connected], error) {
	rows, err := write[connectRow](ctx, s, "peer_connect", connectArguments(requests, s.config.RejoinWindow)...)
	if err != nil {
		return nil, err
	}
	var keys []int64
	for _, row := range rows {
		if row.Outcome == "connected" {
			keys = append(keys, int64(requests[row.Ord-1].Key))
		}
	}
	sessions, err := s.sessionsByKey(ctx, keys)
	peers, peersErr := s.connectedPeers(ctx, keys)
	err = errors.Join(err, peersErr)
	verdicts := make([]verdict[berth.Connected], len(requests))
	for _, row := range rows {
		if err != nil && row.Outcome == "connected" {
			verdicts[row.Ord-1].err = err // the others have their answers
			continue
		}
		verdicts[row.Ord-1] = row.verdict(requests[row.Ord-1], sessions, peers)
	}
	return verdicts, nil
}

// connectArguments turns requests into one array per column.
func connectArguments(requests []berth.Connect, rejoin time.Duration) []any {
	n := len(requests)
	keys, generations, workers, instances := make([]int64, n), make([]int64, n), make([]string, n), make([]int32, n)
	peers, roles, connections, users := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, r := range requests {
		keys[i], generations[i], workers[i], instances[i] = int64(r.Key), int64(r.Generation), r.WorkerID, int32(r.Instance)
		peers[i], roles[i], connections[i], users[i] = r.Peer.ID, r.Peer.Role, r.Peer.ConnectionID, r.Peer.User
	}
	return []any{keys, generations, workers, instances, peers, roles, connections, users, rejoin.Seconds()}
}

func (r connectRow) verdict(
	request berth.Connect, sessions map[berth.SessionKey]berth.Session, peers map[berth.SessionKey][]berth.Peer,
) verdict[berth.Connected] {
	switch r.Outcome {
	case "connected":
		session, found := sessions[request.Key]
		if !found {
			return verdict[berth.Connected]{err: errSessionEnded()}
		}
		var others []berth.Peer
		for _, peer := range peers[request.Key] {
			if peer.ID != request.Peer.ID {
				others = append(others, peer)
			}
		}
		return verdict[berth.Connected]{result: berth.Connected{Session: session, Peers: others, Again: r.Again, At: r.At}}
	case "contended":
		return verdict[berth.Connected]{again: true}
	case "stale":
		return verdict[berth.Connected]{err: berth.ErrStale}
	case "ended":
		return verdict[berth.Connected]{err: errSessionEnded()}
	default:
		return verdict[berth.Connected]{err: fmt.Errorf("connect_peers answered %q", r.Outcome)}
	}
}

// connectedPeers reads the peers of sessions that have a connection.
func (s *Store) connectedPeers(ctx context.Context, keys []int64) (map[berth.SessionKey][]berth.Peer, error) {
	found := make(map[berth.SessionKey][]berth.Peer, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	rows, err := collect[peerRow](ctx, s, "peer_list", keys)
	for _, row := range rows {
		if row.ConnectionID != nil {
			key := berth.SessionKey(row.Session)
			found[key] = append(found[key], row.peer())
		}
	}
	return found, err
}

// DisconnectPeer forgets a connection, unless a newer one took its place, which is berth.ErrStale if the session is a call.
// A peer that left its call ends it. Those of one worker share a statement; see batcher.
func (s *Store) DisconnectPeer(ctx context.Context, gone berth.Disconnect) error {
	_, err := s.disconnects.do(ctx, gone)
	return err
}

type disconnectRow struct {
	Ord     int
	Outcome string
}

// disconnectBatch is the disconnects' batch.
func (s *Store) disconnectBatch(ctx context.Context, requests []berth.Disconnect) ([]verdict[struct{}], error) {
	n := len(requests)
	keys, peers, connections := make([]int64, n), make([]string, n), make([]string, n)
	left, shed := make([]bool, n), make([]bool, n)
	for i, r := range requests {
		keys[i], peers[i], connections[i], left[i], shed[i] = int64(r.Key), r.PeerID, r.ConnectionID, r.Left, r.Shed
	}
	rows, err := write[disconnectRow](ctx, s, "peer_disconnect", keys, peers, connections, left, shed, s.config.RejoinWindow.Seconds())
	if err != nil {
		return nil, err
	}
	verdicts := make([]verdict[struct{}], n)
	for _, row := range rows {
		switch v := &verdicts[row.Ord-1]; row.Outcome {
		case "done":
		case "stale":
			v.err = berth.ErrStale
		case "contended":
			v.again = true
		default:
			v.err = fmt.Errorf("disconnect_peers answered %q", row.Outcome)
		}
	}
	return verdicts, nil
}
