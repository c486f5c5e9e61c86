package postgres

import (
	"context"

	"github.com/berthdev/berth/internal/berth"
)

// LoseCallPeers takes up to limit connections of call peers off a worker that is lost, and returns how many it took. The
// other peers of those calls have notices then; see CallNotices.
func (s *Store) LoseCallPeers(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error) {
	return s.loseCallPeers(ctx, workerID, instance+1, causeLost, limit)
}

func (s *Store) loseCallPeers(
	ctx context.Context, workerID string, below berth.Instance, cause string, limit int,
) (int, error) {
	return value[int](ctx, s, "call_peers_lose", workerID, int32(below), cause, s.config.RejoinWindow.Seconds(), limit)
}

// loseAllCallPeers is loseCallPeers chunk by chunk. What somebody else works on is left to the reaper.
func (s *Store) loseAllCallPeers(ctx context.Context, workerID string, below berth.Instance, cause string) error {
	for {
		lost, err := s.loseCallPeers(ctx, workerID, below, cause, displaceChunk)
		if err != nil || lost == 0 {
			return err
		}
	}
}

type noticeRow struct {
	Session int64
	PeerID  string
	Role    string
	Cause   string
}

// CallNotices reads up to limit losses that the other peer of the call was not told of. Whoever told them clears them.
func (s *Store) CallNotices(ctx context.Context, limit int) ([]berth.CallNotice, error) {
	rows, err := collect[noticeRow](ctx, s, "call_notice_list", limit)
	notices := make([]berth.CallNotice, len(rows))
	for i, row := range rows {
		notices[i] = berth.CallNotice{Key: berth.SessionKey(row.Session), PeerID: row.PeerID, Role: row.Role, Cause: row.Cause}
	}
	return notices, err
}

// ClearCallNotices forgets notices that were told.
func (s *Store) ClearCallNotices(ctx context.Context, notices []berth.CallNotice) error {
	keys, peers := make([]int64, len(notices)), make([]string, len(notices))
	for i, notice := range notices {
		keys[i], peers[i] = int64(notice.Key), notice.PeerID
	}
	return s.exec(ctx, "call_notice_clear", keys, peers)
}
