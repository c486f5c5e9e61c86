package postgres

import (
	"context"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// CallPeers lists the call peers that are connected to an instance, as losses of it, and says until when whoever connected is
// in the list for certain: some seconds ago, since others may be about to commit.
func (s *Store) CallPeers(
	ctx context.Context, workerID string, instance berth.Instance,
) (peers []berth.CallNotice, at time.Time, err error) {
	type peerRow struct {
		Session      int64
		PeerID       string
		Role         string
		ConnectionID string
		Survivor     *string
		At           time.Time
	}
	rows, err := collect[peerRow](ctx, s, "call_peer_list", workerID, int32(instance))
	for _, row := range rows {
		at = row.At
		peers = append(peers, berth.CallNotice{
			Key: berth.SessionKey(row.Session), PeerID: row.PeerID, Role: row.Role, Cause: causeLost,
			ConnectionID: row.ConnectionID, Survivor: deref(row.Survivor),
		})
	}
	return peers, at, err
}

// LoseCallPeers takes up to limit connections of call peers off a worker that is lost, and returns how many it took. Where
// either peer of a call connected after told, there is a notice then; see CallNotices. told zero: there is in any case.
func (s *Store) LoseCallPeers(
	ctx context.Context, workerID string, instance berth.Instance, told time.Time, limit int,
) (int, error) {
	return s.loseCallPeers(ctx, displacement{workerID: workerID, below: instance + 1, cause: causeLost, told: told}, limit)
}

// loseCallPeers is displace for the peers of calls.
func (s *Store) loseCallPeers(ctx context.Context, d displacement, limit int) (int, error) {
	return value[int](ctx, s, "call_peers_lose", d.workerID, int32(d.below), d.keys, d.cause, d.told, s.config.RejoinWindow.Seconds(), limit)
}

type noticeRow struct {
	Session int64
	PeerID  string
	Role    string
	Cause   string

	ConnectionID string
}

// CallNotices reads up to limit losses that the other peer of the call was not told of. Whoever told them clears them.
func (s *Store) CallNotices(ctx context.Context, limit int) ([]berth.CallNotice, error) {
	rows, err := collect[noticeRow](ctx, s, "call_notice_list", limit)
	notices := make([]berth.CallNotice, len(rows))
	for i, row := range rows {
		notices[i] = berth.CallNotice{
			Key: berth.SessionKey(row.Session), PeerID: row.PeerID, Role: row.Role, Cause: row.Cause,
			ConnectionID: row.ConnectionID,
		}
	}
	return notices, err
}

// ClearCallNotices forgets notices that were told, unless they are of another loss by now. Those whose rows are at work stay,
// and are told again.
func (s *Store) ClearCallNotices(ctx context.Context, notices []berth.CallNotice) error {
	keys, peers, connections := make([]int64, len(notices)), make([]string, len(notices)), make([]string, len(notices))
	for i, notice := range notices {
		keys[i], peers[i], connections[i] = int64(notice.Key), notice.PeerID, notice.ConnectionID
	}
	return s.exec(ctx, "call_notice_clear", keys, peers, connections)
}
