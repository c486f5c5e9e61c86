package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// CreateSession serves POST /v1/sessions.
func (s *service) CreateSession(w http.ResponseWriter, r *http.Request) {
	s.createSession(w, r, callerOf(r.Context()).TenantID)
}

func (s *service) createSession(w http.ResponseWriter, r *http.Request, tenantID string) {
	start, said, err := s.readStart(w, r, tenantID)
	if err == nil && s.draining.Load() {
		err = stopping() // the caller's next attempt should reach another process
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	placement, err := s.place(r.Context(), start)
	tellQuotas(w.Header(), placement.Limits, err)
	if start.Wait > 0 {
		w.Header().Set("Preference-Applied", fmt.Sprintf("wait=%d", start.Wait/time.Second))
	}
	if placement.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	s.answerPlacement(w, r, placement, said, err)
}

// place places the session. A start that waits leaves the queue when the process stops.
func (s *service) place(ctx context.Context, start berth.Start) (berth.Placement, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if start.Wait > 0 {
		defer s.held.add(cancel)()
	}
	placement, err := s.deps.Placer.Place(waiting, start)
	var refusal *berth.Refusal
	switch {
	case err == nil:
		return placement, nil
	case errors.As(err, &refusal):
		s.countRefusal(start.TenantID, start.Region, refusal.Code)
		return placement, notBeforeToken(*refusal, placement.Limits)
	case waiting.Err() != nil && ctx.Err() == nil:
		return placement, stopping()
	default:
		return placement, err
	}
}

func stopping() *berth.Refusal { return unavailable("This process is about to stop; ask again.") }

// countRefusal records what was refused for want of slots or quota, for people who ask why.
func (s *service) countRefusal(tenantID, region string, code berth.Code) {
	switch code {
	case berth.CodeAtCapacity, berth.CodeConcurrentSessions, berth.CodeStartRateLimited:
		s.deps.Refusals.Record(tenantID, region, code)
	default: // refused for a reason that more slots or quota would not change
	}
}

// ListSessions serves GET /v1/sessions.
func (s *service) ListSessions(w http.ResponseWriter, r *http.Request, params wire.ListSessionsParams) {
	list, err := s.listSessions(r.Context(), params)
	s.answer(w, r, http.StatusOK, list, err)
}

func (s *service) listSessions(ctx context.Context, params wire.ListSessionsParams) (wire.SessionList, error) {
	caller := callerOf(ctx)
	filter, err := sessionFilter(caller, params)
	if err != nil {
		return wire.SessionList{}, err
	}
	limit := filter.Limit
	filter.Limit++ // one more tells whether another page follows
	sessions, err := s.deps.Sessions.ListSessions(ctx, filter)
	if err != nil {
		return wire.SessionList{}, err
	}
	page, more := cut(sessions, limit)
	list := wire.SessionList{Data: make([]wire.Session, len(page)), HasMore: more}
	for i, session := range page {
		list.Data[i] = wireSession(caller, session)
	}
	if more {
		list.NextCursor = new(encodeCursor(cursorSessions, strconv.FormatInt(int64(page[limit-1].Key), 10)))
	}
	return list, nil
}

func sessionFilter(caller auth.Principal, params wire.ListSessionsParams) (berth.SessionFilter, error) {
	var c checks
	filter := berth.SessionFilter{
		State:    berth.SessionState(value(params.State, "")),
		WorkerID: value(params.Worker, ""),
		Before:   c.sessionCursor(params.Cursor),
		Limit:    c.pageLimit(params.Limit),
	}
	c.require(params.State == nil || params.State.Valid(), "state", "must be assigned, active, awaiting_rejoin or ended")
	c.require(params.Worker == nil || berth.ValidID(*params.Worker), "worker", reasonID)
	tenantID, err := c.tenant(caller, params.Tenant)
	if err != nil {
		return filter, err
	}
	filter.TenantID = tenantID
	return filter, c.err()
}

// GetSession serves GET /v1/sessions/{id}.
func (s *service) GetSession(w http.ResponseWriter, r *http.Request, id wire.SessionID, params wire.GetSessionParams) {
	session, err := s.getSession(r.Context(), id, params.Tenant)
	s.answer(w, r, http.StatusOK, session, err)
}

func (s *service) getSession(ctx context.Context, id string, tenant *string) (wire.Session, error) {
	caller := callerOf(ctx)
	tenantID, err := addressed(caller, id, tenant)
	if err != nil {
		return wire.Session{}, err
	}
	session, peers, err := s.deps.Sessions.Session(ctx, tenantID, id)
	if err != nil {
		return wire.Session{}, err
	}
	answer := wireSession(caller, session)
	answer.Peers = new(wirePeers(peers))
	return answer, nil
}

// EndSession serves DELETE /v1/sessions/{id}.
func (s *service) EndSession(w http.ResponseWriter, r *http.Request, id wire.SessionID, params wire.EndSessionParams) {
	if err := s.endSession(r.Context(), id, params.Tenant); err != nil {
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *service) endSession(ctx context.Context, id string, tenant *string) error {
	tenantID, err := addressed(callerOf(ctx), id, tenant)
	if err != nil {
		return err
	}
	before, err := s.deps.Sessions.EndSession(ctx, tenantID, id)
	if err != nil {
		return err
	}
	if before.State != berth.SessionEnded {
		s.log.InfoContext(ctx, "session ended", slog.String("session_id", id), slog.String("worker_id", before.WorkerID),
			slog.String("reason", string(berth.EndedDeleted)))
	}
	switch {
	case before.State == berth.SessionEnded:
	case before.Kind == berth.KindCall:
		s.nudgePeers(ctx, tenantID, id)
	case before.State == berth.SessionActive: // nobody else is there to be told
		s.nudges.send(before.WorkerID)
	}
	return nil
}

// nudgePeers nudges the workers of a call that was ended. They hear it with their next renewals otherwise.
func (s *service) nudgePeers(ctx context.Context, tenantID, id string) {
	_, peers, err := s.deps.Sessions.Session(ctx, tenantID, id)
	if err != nil {
		return
	}
	for _, peer := range peers {
		if peer.WorkerID != "" {
			s.nudges.send(peer.WorkerID)
		}
	}
}

// addressed checks the id in a path and says whose session it names.
func addressed(caller auth.Principal, id string, tenant *string) (tenantID string, err error) {
	var c checks
	c.require(berth.ValidID(id), "id", reasonID)
	if tenantID, err = c.tenant(caller, tenant); err != nil {
		return "", err
	}
	c.require(tenantID != "", "tenant", "is required with an operator's key")
	return tenantID, c.err()
}

// tenant says whose sessions a caller means: its own, or for operators those of the tenant they name, "" for everybody's.
func (c *checks) tenant(caller auth.Principal, named *string) (string, error) {
	c.require(named == nil || berth.ValidID(*named), "tenant", reasonID)
	if isOperator(caller) {
		return value(named, ""), nil
	}
	if named != nil && *named != caller.TenantID {
		return "", berth.Refuse(berth.CodeForbidden, "A tenant's key reads its own sessions only.")
	}
	return caller.TenantID, nil
}
