package postgres

import (
	"context"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// releaseRequest ends one session.
type releaseRequest struct {
	key        berth.SessionKey
	generation *int64 // of the placement that it is about; nil: wherever the session is
	reason     berth.EndedReason
	unseen     bool // only if nobody was told of the placement but a caller that left
}

// released says whether the session ended by this request. It had ended, or moved on, otherwise.
type released bool

// EndSession ends a tenant's session as deleted, and returns the row as it was before. Ending it again is no error.
func (s *Store) EndSession(ctx context.Context, tenantID, id string) (berth.Session, error) {
	session, err := s.sessionByID(ctx, tenantID, id)
	if err != nil || session.State == berth.SessionEnded {
		return session, err
	}
	_, err = s.releases.do(ctx, releaseRequest{key: session.Key, reason: berth.EndedDeleted})
	return session, err
}

// EndSessions ends each session that its owner still holds at the generation named. Each has its own outcome: after an
// error some may have ended, and all may be asked for again.
func (s *Store) EndSessions(ctx context.Context, ends []berth.End) error {
	requests := make([]releaseRequest, len(ends))
	for i, end := range ends {
		requests[i] = releaseRequest{key: end.Key, generation: new(int64(end.Generation)), reason: end.Reason}
	}
	if len(requests) == 1 {
		_, err := s.releases.do(ctx, requests[0])
		return err
	}
	return s.releaseAll(ctx, requests)
}

// releaseAll is for many at once, which need no company.
func (s *Store) releaseAll(ctx context.Context, requests []releaseRequest) error {
	for pause := firstPause; len(requests) > 0; pause = min(2*pause, longestPause) {
		chunk := requests[:min(len(requests), berth.MaxBatch)]
		verdicts, err := s.releaseBatch(ctx, chunk)
		if err != nil {
			return err
		}
		var again []releaseRequest
		for i, v := range verdicts {
			if v.again {
				again = append(again, chunk[i])
			}
		}
		progress := len(again) < len(chunk)
		requests = append(again, requests[len(chunk):]...)
		if progress {
			pause = firstPause / 2
			continue
		}
		select {
		case <-ctx.Done():
			return departed(ctx.Err())
		case <-time.After(pause):
		}
	}
	return nil
}

// releaseUnseen gives back what callers were given that left before they were told.
func (s *Store) releaseUnseen(ctx context.Context, sessions []berth.Session) {
	requests := make([]releaseRequest, len(sessions))
	for i, session := range sessions {
		requests[i] = releaseRequest{
			key: session.Key, generation: new(int64(session.Generation)), reason: berth.EndedNoShow, unseen: true,
		}
	}
	// What fails here ends at its connect_by.
	_ = s.releaseAll(ctx, requests)
}

// abandonClaims undoes what was placed for callers that left meanwhile.
func (s *Store) abandonClaims(ctx context.Context, answers []claimed) {
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	var unseen []berth.Session
	for _, answer := range answers {
		switch {
		case answer.waiter != 0:
			served := make(chan waiterRow) // nobody collects it: the poll does not know it
			s.queue.abandon(ctx, answer.waiter, served)
		case answer.placement.Created:
			unseen = append(unseen, answer.placement.Session)
		}
	}
	if len(unseen) > 0 {
		s.releaseUnseen(ctx, unseen)
	}
}

type releaseRow struct {
	Ord     int
	Outcome string
}

// releaseBatch is the releases' batch.
func (s *Store) releaseBatch(ctx context.Context, requests []releaseRequest) ([]verdict[released], error) {
	n := len(requests)
	keys, generations, reasons, unseen := make([]int64, n), make([]*int64, n), make([]string, n), make([]bool, n)
	for i, r := range requests {
		keys[i], generations[i], reasons[i], unseen[i] = int64(r.key), r.generation, string(r.reason), r.unseen
	}
	rows, err := write[releaseRow](ctx, s, "session_release", keys, generations, reasons, unseen)
	if err != nil {
		return nil, err
	}
	verdicts := make([]verdict[released], n)
	for _, row := range rows {
		verdicts[row.Ord-1] = verdict[released]{result: row.Outcome == "ended", again: row.Outcome == "contended"}
	}
	return verdicts, nil
}
