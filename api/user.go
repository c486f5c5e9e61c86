package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// Users knows where users are connected.
type Users interface {
	// UserWorkers says which workers hold connections of a tenant's user, and how many. Those of a worker that is over do not
	// count.
	UserWorkers(ctx context.Context, tenantID, userID string) ([]berth.UserConnections, error)
}

// SendToUser serves POST /v1/users/{id}/messages.
func (s *service) SendToUser(w http.ResponseWriter, r *http.Request, id wire.UserID) {
	sent, err := s.sendToUser(w, r, id)
	s.answer(w, r, http.StatusOK, sent, err)
}

func (s *service) sendToUser(w http.ResponseWriter, r *http.Request, id string) (wire.DirectMessage, error) {
	if !berth.ValidID(id) {
		return wire.DirectMessage{}, berth.Invalid("id", reasonID)
	}
	data, err := s.readMessage(w, r, berth.MaxDirectData)
	if err != nil {
		return wire.DirectMessage{}, err
	}
	sent, err := s.direct(r.Context(), callerOf(r.Context()).TenantID, id, data)
	switch {
	case err != nil:
		s.metrics.direct.WithLabelValues(directFailed).Inc()
	case sent.Workers == 0:
		s.metrics.direct.WithLabelValues(directNobody).Inc()
	default:
		s.metrics.direct.WithLabelValues(directSent).Inc()
	}
	return sent, err
}

// direct tells the workers that hold the user, and counts those that were told: one that just died is not.
func (s *service) direct(ctx context.Context, tenantID, userID string, data jsontext.Value) (wire.DirectMessage, error) {
	sent := wire.DirectMessage{User: userID}
	held, err := s.deps.Users.UserWorkers(ctx, tenantID, userID)
	if err != nil || len(held) == 0 {
		return sent, err
	}
	message, err := json.Marshal(berth.InboxMessage{
		Direct: &berth.DirectMessage{TenantID: tenantID, UserID: userID, Data: []byte(data)},
	}, jsontext.PreserveRawStrings(true))
	if err != nil {
		return sent, fmt.Errorf("encode direct message: %w", err)
	}
	for chunk := range slices.Chunk(held, backplane.MaxMessages) {
		outgoing := make([]backplane.Outgoing, len(chunk))
		for i, worker := range chunk {
			outgoing[i] = backplane.Outgoing{Topic: berth.InboxTopic(worker.WorkerID), Data: message}
		}
		published, err := s.deps.Backplane.Publish(ctx, outgoing...)
		if err != nil {
			return sent, backplaneError(err)
		}
		for i, worker := range chunk {
			if published[i].Processes > 0 {
				sent.Workers++
				sent.Connections += worker.Connections
			}
		}
	}
	return sent, nil
}
