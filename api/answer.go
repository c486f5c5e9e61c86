package api

import (
	"net/http"
	"net/url"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// answerPlacement answers 201 for a new placement, also if an Idempotency-Key asks again for its answer, and 200 for one
// that stood already.
func (s *service) answerPlacement(w http.ResponseWriter, r *http.Request, placement berth.Placement, said grant, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer, err := s.placement(r, placement, said)
	status := http.StatusOK
	if (placement.Created || placement.Replayed) && err == nil {
		status = http.StatusCreated
		w.Header().Set("Location", s.publicURL+"/v1/sessions/"+answer.ID)
	}
	s.answer(w, r, status, answer, err)
}

// placement is what a client needs to connect: who owns the session, and fresh tokens whose times are the database's.
func (s *service) placement(r *http.Request, placed berth.Placement, said grant) (wire.Placement, error) {
	session := placed.Session
	if !session.State.Live() { // a start that is repeated by its Idempotency-Key may come late
		return wire.Placement{}, berth.Refuse(berth.CodeSessionEnded, "The session has ended.")
	}
	if session.WorkerID == "" || session.Kind == berth.KindMedia && !session.State.HoldsSlot() {
		return wire.Placement{}, unavailable("The session is being moved to another worker; ask again.")
	}
	owner, err := wireOwner(session)
	if err != nil {
		return wire.Placement{}, err
	}
	token, expiresAt, err := s.deps.Signer.Mint(r.Context(), sessionToken(placed, said), placed.At)
	if err != nil {
		return wire.Placement{}, err
	}
	rejoinToken, err := s.deps.RejoinTokens.Mint(auth.RejoinToken{
		SessionKey: session.Key, PeerID: placed.Peer.ID, User: said.user, Topics: said.topics,
	})
	if err != nil {
		return wire.Placement{}, err
	}
	return wire.Placement{
		ID:              session.ID,
		Kind:            wire.SessionKind(session.Kind),
		State:           wire.SessionState(session.State),
		Generation:      int64(session.Generation),
		Region:          session.Region,
		RequestedRegion: optional(session.RequestedRegion),
		Spilled:         session.Spilled(),
		Owner:           owner,
		Peer:            wire.PeerName{ID: placed.Peer.ID, Role: placed.Peer.Role, User: optional(said.user)},
		Token:           token,
		TokenExpiresAt:  expiresAt.UTC(),
		RejoinToken:     rejoinToken,
		RejoinURL:       s.publicURL + "/v1/sessions/" + session.ID + "/rejoin",
		IceServers:      s.iceServers(placed),
		CreatedAt:       session.CreatedAt.UTC(),
		ConnectBy:       optionalTime(session.ConnectBy),
		ExpiresAt:       session.ExpiresAt.UTC(),
	}, nil
}

func sessionToken(placed berth.Placement, said grant) auth.SessionToken {
	session := placed.Session
	return auth.SessionToken{
		WorkerID: session.WorkerID, SessionID: session.ID, SessionKey: session.Key, TenantID: session.TenantID,
		Generation: session.Generation, PeerID: placed.Peer.ID, Role: placed.Peer.Role, Kind: session.Kind, Handler: session.Handler,
		User: said.user, Topics: said.topics,
	}
}

func (s *service) iceServers(placed berth.Placement) []wire.IceServer {
	servers := s.cfg.TURN.ICEServers(placed.Peer.ID, placed.At)
	answers := make([]wire.IceServer, len(servers))
	for i, server := range servers {
		answers[i] = wire.IceServer{Urls: server.URLs, Username: optional(server.Username), Credential: optional(server.Credential)}
	}
	return answers
}

// wireOwner names the owner, with the session in its URL so that a balancer can hash on it.
func wireOwner(session berth.Session) (wire.Owner, error) {
	signaling, err := url.Parse(session.SignalingURL)
	if err != nil {
		return wire.Owner{}, err
	}
	query := signaling.Query()
	query.Set("session", session.ID)
	signaling.RawQuery = query.Encode()
	return wire.Owner{WorkerID: session.WorkerID, SignalingURL: signaling.String()}, nil
}

// wireSession is a session as its reader may see it. Only operators see whose it is.
func wireSession(caller auth.Principal, session berth.Session) wire.Session {
	answer := wire.Session{
		ID:                 session.ID,
		Kind:               wire.SessionKind(session.Kind),
		State:              wire.SessionState(session.State),
		Generation:         int64(session.Generation),
		Region:             optional(session.Region),
		RequestedRegion:    optional(session.RequestedRegion),
		Spill:              session.Spill,
		Spilled:            session.Spilled(),
		Slots:              session.Slots,
		Strategy:           optional(wire.Strategy(session.Strategy)),
		Handler:            session.Handler,
		OnWorkerLoss:       wire.OnWorkerLoss(session.OnWorkerLoss),
		TTLSeconds:         int(session.TTL / time.Second),
		IdleTimeoutSeconds: int(session.IdleTimeout / time.Second),
		Metadata:           session.Metadata,
		CreatedAt:          session.CreatedAt.UTC(),
		ConnectBy:          optionalTime(session.ConnectBy),
		RejoinBy:           optionalTime(session.RejoinBy),
		ExpiresAt:          session.ExpiresAt.UTC(),
		EndedAt:            optionalTime(session.EndedAt),
		EndedReason:        optional(wire.EndedReason(session.EndedReason)),
	}
	if isOperator(caller) {
		answer.TenantID = &session.TenantID
	}
	if len(session.Selector) > 0 {
		answer.Selector = new(wire.Selector(session.Selector))
	}
	if session.State.HoldsSlot() && session.WorkerID != "" {
		if owner, err := wireOwner(session); err == nil {
			answer.Owner = &owner
		}
	}
	return answer
}

func wirePeers(peers []berth.Peer) []wire.Peer {
	answers := make([]wire.Peer, len(peers))
	for i, peer := range peers {
		answers[i] = wire.Peer{
			ID: peer.ID, Role: peer.Role, Connected: !peer.ConnectedAt.IsZero(), ConnectedAt: optionalTime(peer.ConnectedAt),
			User: optional(peer.User), WorkerID: optional(peer.WorkerID),
		}
	}
	return answers
}

func wireWorker(worker berth.Worker) wire.Worker {
	return wire.Worker{
		ID:             worker.ID,
		Instance:       int32(worker.Instance),
		Region:         worker.Region,
		State:          wire.WorkerState(worker.State),
		CordonedReason: optional(worker.CordonedReason),
		Capacity:       worker.Capacity,
		Used:           worker.Used,
		Free:           worker.Free(),
		SuspectReason:  optional(worker.SuspectReason),
		Labels:         labels(worker.Labels),
		SignalingURL:   worker.SignalingURL,
		ControlURL:     worker.ControlURL,
		Version:        worker.Version,
		RegisteredAt:   worker.RegisteredAt.UTC(),
		RenewedAt:      optionalTime(worker.RenewedAt),
		LeaseExpiresAt: optionalTime(worker.LeaseExpiresAt),
		DrainDeadline:  optionalTime(worker.DrainDeadline),
	}
}

// labels is never null.
func labels(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

// optional leaves out the zero value.
func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}
