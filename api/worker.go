package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// ListWorkers serves GET /v1/workers.
func (s *service) ListWorkers(w http.ResponseWriter, r *http.Request, params wire.ListWorkersParams) {
	list, err := s.listWorkers(r.Context(), params)
	s.answer(w, r, http.StatusOK, list, err)
}

func (s *service) listWorkers(ctx context.Context, params wire.ListWorkersParams) (wire.WorkerList, error) {
	var c checks
	after, limit := c.cursor(cursorWorkers, params.Cursor), c.pageLimit(params.Limit)
	if err := c.err(); err != nil {
		return wire.WorkerList{}, err
	}
	workers, err := s.deps.Workers.Workers(ctx)
	if err != nil {
		return wire.WorkerList{}, err
	}
	slices.SortFunc(workers, func(a, b berth.Worker) int { return cmp.Compare(a.ID, b.ID) })
	// A cursor that names a worker which is gone still says where to go on.
	first, found := slices.BinarySearchFunc(workers, after, func(w berth.Worker, id string) int { return cmp.Compare(w.ID, id) })
	if found {
		first++
	}
	page, more := cut(workers[first:], limit)
	list := wire.WorkerList{Data: make([]wire.Worker, len(page)), HasMore: more}
	for i, worker := range page {
		list.Data[i] = wireWorker(worker)
	}
	if more {
		list.NextCursor = new(encodeCursor(cursorWorkers, page[limit-1].ID))
	}
	return list, nil
}

// GetWorker serves GET /v1/workers/{id}.
func (s *service) GetWorker(w http.ResponseWriter, r *http.Request, id wire.WorkerID) {
	s.answerWorker(w, r, id, s.deps.Workers.Worker)
}

// DrainWorker serves POST /v1/workers/{id}/drain.
func (s *service) DrainWorker(w http.ResponseWriter, r *http.Request, id wire.WorkerID) {
	request, _, err := decodeOptional[wire.DrainRequest](s, w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var c checks
	deadline := c.seconds("deadline_seconds", request.DeadlineSeconds, berth.MinDrainDeadline, berth.MaxDrainDeadline, berth.DefaultDrainDeadline)
	if err := c.err(); err != nil {
		s.fail(w, r, err)
		return
	}
	s.answerWorker(w, r, id, func(ctx context.Context, id string) (berth.Worker, error) {
		return s.drainWorker(ctx, id, deadline, value(request.Override, false))
	})
}

func (s *service) drainWorker(ctx context.Context, id string, deadline time.Duration, override bool) (berth.Worker, error) {
	worker, err := s.deps.Workers.DrainWorker(ctx, id, deadline, override)
	if err != nil {
		return worker, err
	}
	s.log.InfoContext(ctx, "worker drains", slog.String("worker_id", id), slog.Time("drain_deadline", worker.DrainDeadline))
	s.nudges.send(id)
	return worker, nil
}

// UndrainWorker serves DELETE /v1/workers/{id}/drain.
func (s *service) UndrainWorker(w http.ResponseWriter, r *http.Request, id wire.WorkerID) {
	s.answerWorker(w, r, id, func(ctx context.Context, id string) (berth.Worker, error) {
		worker, err := s.deps.Workers.UndrainWorker(ctx, id)
		if err == nil {
			s.log.InfoContext(ctx, "worker drain undone", slog.String("worker_id", id))
			s.nudges.send(id)
		}
		return worker, err
	})
}

// ShedWorker serves POST /v1/workers/{id}/shed.
func (s *service) ShedWorker(w http.ResponseWriter, r *http.Request, id wire.WorkerID) {
	request, err := decode[wire.ShedRequest](s, w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var c checks
	c.require(request.Count >= 1 && request.Count <= berth.MaxShed, "count", fmt.Sprintf("must be an integer from 1 to %d", berth.MaxShed))
	spread := c.seconds("spread_seconds", request.SpreadSeconds, time.Second, berth.MaxShedSpread, berth.ShedSpread)
	if err := c.err(); err != nil {
		s.fail(w, r, err)
		return
	}
	s.answerWorker(w, r, id, func(ctx context.Context, id string) (berth.Worker, error) {
		if err := s.deps.Workers.OrderShed(ctx, id, 0, berth.ShedOrder{Count: request.Count, Spread: spread}); err != nil {
			return berth.Worker{}, err
		}
		s.log.InfoContext(ctx, "worker is to shed connections", slog.String("worker_id", id), slog.Int("count", request.Count))
		s.nudges.send(id)
		return s.deps.Workers.Worker(ctx, id)
	})
}

// answerWorker checks the id in the path, then answers the worker that call returns.
func (s *service) answerWorker(w http.ResponseWriter, r *http.Request, id string, call func(context.Context, string) (berth.Worker, error)) {
	if !berth.ValidID(id) {
		s.refuse(w, r, berth.Invalid("id", reasonID))
		return
	}
	worker, err := call(r.Context(), id)
	s.answer(w, r, http.StatusOK, wireWorker(worker), err)
}
