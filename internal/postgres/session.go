package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

type sessionRow struct {
	Key                int64
	TenantID           string
	ID                 string
	Kind               string
	State              string
	Region             *string
	RequestedRegion    *string
	Spill              bool
	WorkerID           *string
	Instance           *int32
	SignalingURL       *string
	LastWorkerID       *string
	Generation         int64
	Handler            string
	OnWorkerLoss       string
	TTLSeconds         int
	IdleTimeoutSeconds int
	Metadata           *string
	CreatedAt          time.Time
	ConnectBy          *time.Time
	RejoinBy           *time.Time
	ExpiresAt          time.Time
	EndedAt            *time.Time
	EndedReason        *string
	Slots              int
	Strategy           string
	Selector           map[string]string
}

// deref is the value behind p, or the zero value of its type.
func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func (r sessionRow) session() berth.Session {
	session := berth.Session{
		Key:             berth.SessionKey(r.Key),
		TenantID:        r.TenantID,
		ID:              r.ID,
		Kind:            berth.SessionKind(r.Kind),
		State:           berth.SessionState(r.State),
		Region:          deref(r.Region),
		RequestedRegion: deref(r.RequestedRegion),
		Spill:           r.Spill,
		WorkerID:        deref(r.WorkerID),
		Instance:        berth.Instance(deref(r.Instance)),
		SignalingURL:    deref(r.SignalingURL),
		LastWorkerID:    deref(r.LastWorkerID),
		Generation:      berth.Generation(r.Generation),
		Handler:         r.Handler,
		OnWorkerLoss:    berth.OnWorkerLoss(r.OnWorkerLoss),
		TTL:             time.Duration(r.TTLSeconds) * time.Second,
		IdleTimeout:     time.Duration(r.IdleTimeoutSeconds) * time.Second,
		CreatedAt:       r.CreatedAt,
		ConnectBy:       deref(r.ConnectBy),
		RejoinBy:        deref(r.RejoinBy),
		ExpiresAt:       r.ExpiresAt,
		EndedAt:         deref(r.EndedAt),
		EndedReason:     berth.EndedReason(deref(r.EndedReason)),
		Slots:           r.Slots,
		Strategy:        berth.Strategy(r.Strategy),
		Selector:        r.Selector,
	}
	if r.Metadata != nil {
		session.Metadata = json.RawMessage(*r.Metadata)
	}
	return session
}

func errNoSession() error {
	return berth.Refuse(berth.CodeNotFound, "There is no session with this id.")
}

func errSessionEnded() error {
	return berth.Refuse(berth.CodeSessionEnded, "The session has ended. Start another.")
}

// Session reads the newest row of a tenant's id, live or ended not long ago, and its peers.
func (s *Store) Session(ctx context.Context, tenantID, id string) (berth.Session, []berth.Peer, error) {
	session, err := s.sessionByID(ctx, tenantID, id)
	if err != nil {
		return berth.Session{}, nil, err
	}
	peers, err := s.peers(ctx, session.Key)
	return session, peers, err
}

func (s *Store) sessionByID(ctx context.Context, tenantID, id string) (berth.Session, error) {
	return one(collect[sessionRow](ctx, s, "session_by_id", tenantID, id))
}

// SessionByKey reads one row. Its plan does not depend on how many are asked for, so Postgres keeps it.
func (s *Store) SessionByKey(ctx context.Context, key berth.SessionKey) (berth.Session, error) {
	return one(collect[sessionRow](ctx, s, "session_by_key", int64(key)))
}

// one is the session that a query looked for.
func one(rows []sessionRow, err error) (berth.Session, error) {
	if err != nil {
		return berth.Session{}, err
	}
	if len(rows) == 0 {
		return berth.Session{}, errNoSession()
	}
	return rows[0].session(), nil
}

func (s *Store) sessionsByKey(ctx context.Context, keys []int64) (map[berth.SessionKey]berth.Session, error) {
	found := make(map[berth.SessionKey]berth.Session, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	rows, err := collect[sessionRow](ctx, s, "session_by_keys", keys)
	for _, row := range rows {
		found[berth.SessionKey(row.Key)] = row.session()
	}
	return found, err
}

// ListSessions reads sessions, newest first.
func (s *Store) ListSessions(ctx context.Context, filter berth.SessionFilter) ([]berth.Session, error) {
	rows, err := collect[sessionRow](ctx, s, "session_list",
		filter.TenantID, string(filter.State), filter.WorkerID, int64(filter.Before), filter.Limit)
	sessions := make([]berth.Session, 0, len(rows))
	for _, row := range rows {
		sessions = append(sessions, row.session())
	}
	return sessions, err
}

// EndOverdue ends up to limit sessions whose deadline passed, and returns how many it ended.
func (s *Store) EndOverdue(ctx context.Context, limit int) (int, error) {
	return value[int](ctx, s, "session_end_overdue", limit)
}

// PurgeSessions deletes up to limit rows that ended longer ago than age, with their peers, and returns how many. Their
// history stays for as long as ForgetEvents leaves it.
func (s *Store) PurgeSessions(ctx context.Context, age time.Duration, limit int) (int, error) {
	return value[int](ctx, s, "session_purge", age, limit)
}

type verdictRow struct {
	Verdict  string
	WorkerID *string
	Instance *int32
}

// Rejoin answers a peer that lost its owner. Any number of peers that rejoin one session are one move, since the
// claim of a live id is idempotent.
func (s *Store) Rejoin(ctx context.Context, rejoin berth.Rejoin) (berth.RejoinAnswer, error) {
	rows, err := collect[verdictRow](ctx, s, "session_rejoin_verdict",
		int64(rejoin.Key), rejoin.PeerID, int64(rejoin.Generation), rejoin.Lost)
	if err != nil {
		return berth.RejoinAnswer{}, err
	}
	if len(rows) == 0 {
		return berth.RejoinAnswer{}, errNoSession()
	}
	verdict, left := rows[0], ""
	switch verdict.Verdict {
	case "ended":
		return berth.RejoinAnswer{}, errSessionEnded()
	case "ahead":
		return berth.RejoinAnswer{}, berth.Invalid("generation",
			"is newer than any placement of this session; send the one of your last answer")
	case "hold":
		return berth.RejoinAnswer{Outcome: berth.RejoinHold}, nil
	case "move_peer":
		if err := s.exec(ctx, "call_peer_move", int64(rejoin.Key), rejoin.PeerID, s.config.RejoinWindow.Seconds()); err != nil {
			return berth.RejoinAnswer{}, err
		}
	case "move":
		left = deref(verdict.WorkerID)
		_, err := s.displace(ctx, displacement{
			workerID: deref(verdict.WorkerID), below: berth.Instance(deref(verdict.Instance)) + 1,
			keys: []int64{int64(rejoin.Key)}, generation: new(int64(rejoin.Generation)),
			cause: causeLateOwner, ended: berth.EndedWorkerLost,
		}, 1)
		if err != nil {
			return berth.RejoinAnswer{}, err
		}
	}
	answer, err := s.replace(ctx, rejoin)
	answer.Left = left
	return answer, err
}

// replace claims a slot for a session that awaits a rejoin; one that has its place keeps it.
func (s *Store) replace(ctx context.Context, rejoin berth.Rejoin) (berth.RejoinAnswer, error) {
	session, err := s.SessionByKey(ctx, rejoin.Key)
	if err != nil {
		return berth.RejoinAnswer{}, err
	}
	result, err := s.placeAgain(ctx, session, berth.Peer{ID: rejoin.PeerID, Role: berth.RoleOffer})
	if err != nil {
		return berth.RejoinAnswer{}, err
	}
	outcome := berth.RejoinCurrent
	if result.placement.Session.Generation > session.Generation {
		outcome = berth.RejoinPlaced
	}
	return berth.RejoinAnswer{Outcome: outcome, Placement: result.placement}, nil
}

// restart is the Start that asks for a live session's placement.
func restart(session berth.Session, peer berth.Peer) berth.Start {
	return berth.Start{
		TenantID:     session.TenantID,
		ID:           session.ID,
		Kind:         session.Kind,
		Peer:         peer,
		Spill:        session.Spill,
		Handler:      session.Handler,
		OnWorkerLoss: session.OnWorkerLoss,
		TTL:          session.TTL,
		IdleTimeout:  session.IdleTimeout,
		Slots:        session.Slots,
	}
}

// displacement says which sessions to take off a worker, and why.
type displacement struct {
	workerID   string
	below      berth.Instance // only sessions of instances below this one
	keys       []int64        // nil: all
	generation *int64         // nil: at any placement
	cause      string
	ended      berth.EndedReason // of those that asked to end
	told       time.Time         // the loss of call peers that connected until then is known
}

// displace takes up to limit sessions off a worker, and returns how many it took. Rows that somebody else works on
// stay.
func (s *Store) displace(ctx context.Context, d displacement, limit int) (int, error) {
	return value[int](ctx, s, "session_displace", d.workerID, int32(d.below), d.keys, d.generation, d.cause,
		string(d.ended), s.config.RejoinWindow.Seconds(), limit)
}

// displaceAll displaces chunk by chunk, calls too. A row that somebody else works on all the while is left to the reaper,
// which finds what an instance should no longer own.
func (s *Store) displaceAll(ctx context.Context, d displacement) error {
	for _, move := range []func(context.Context, displacement, int) (int, error){s.displace, s.loseCallPeers} {
		for {
			moved, err := move(ctx, d, displaceChunk)
			if err != nil {
				return err
			}
			if moved == 0 {
				break
			}
		}
	}
	return nil
}
