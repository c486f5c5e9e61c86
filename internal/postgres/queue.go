package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// queuePoll is how often a process looks for what its waiters got. NOTIFY would be prompter, but it may not be in
	// the transaction of a claim or a release.
	queuePoll = 10 * time.Millisecond
	// queueServe is how often it serves the queue itself, for slots that opened while a waiter was being queued.
	queueServe = 50 * time.Millisecond
	// queueRetry is the pause before presence is sought again.
	queueRetry = time.Second
	// leaveWait bounds the removal of a waiter whose caller left.
	leaveWait = 5 * time.Second
)

// queue is this process's part of the table of waiters. Its rows are its own while it is present; see Attend.
type queue struct {
	store   *Store
	process atomic.Int32 // its instance while it is present; zero: it may not queue
	running sync.WaitGroup

	mu      sync.Mutex // guards the rest
	waiting map[int64]chan waiterRow
	polling bool
	closed  bool
}

// waiterRow is what a waiter got.
type waiterRow struct {
	ID         int64
	Outcome    *string
	SessionKey *int64
	Replayed   *bool
	PeerID     string
	Role       string
	PeerFresh  *bool
	At         time.Time
}

// owner is the process that waiters are to belong to; nil while it is not present.
func (q *queue) owner() *int32 { return nonzero(q.process.Load()) }

// Attend makes starts able to wait for capacity: it keeps this process present, as workers are, until ctx ends. The
// waiters of a process that is not present are passed over.
func (s *Store) Attend(ctx context.Context, logger *slog.Logger) {
	for ctx.Err() == nil {
		if err := s.queue.attend(ctx); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "presence of the queue lost; starts cannot wait until it is back", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(queueRetry):
		}
	}
}

// attend is present until ctx or the connection ends. Those who waited meanwhile keep their turns.
func (q *queue) attend(ctx context.Context) error {
	instance, err := q.store.NextInstance(ctx)
	if err != nil {
		return err
	}
	presence, err := q.store.Presence(ctx, instance)
	if err != nil {
		return err
	}
	if err := q.store.exec(ctx, "waiter_adopt", q.ids(), int32(instance)); err != nil {
		_ = presence.Close(context.WithoutCancel(ctx)) // the first error says more
		return err
	}
	q.process.Store(int32(instance))
	defer q.process.Store(0)
	select {
	case <-ctx.Done():
		return presence.Close(context.WithoutCancel(ctx))
	case <-presence.Done():
		return fmt.Errorf("connection ended: %w", berth.ErrUnavailable)
	}
}

func (q *queue) ids() []int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := make([]int64, 0, len(q.waiting))
	for id := range q.waiting {
		ids = append(ids, id)
	}
	return ids
}

// wait returns what a waiter got, or at_capacity once the time that its request allows is over. One whose caller leaves
// gives up its turn, and what it was given meanwhile.
func (q *queue) wait(ctx context.Context, request claimRequest, queued claimed) (claimed, error) {
	until := time.Now().Add(request.start.Wait)
	served := make(chan waiterRow, 1)
	if !q.enter(ctx, queued.waiter, served) {
		return claimed{}, errClosed()
	}
	timer := time.NewTimer(request.start.Wait)
	defer timer.Stop()
	select {
	case row := <-served:
		request.start.Wait = max(0, time.Until(until)) // should it have to be placed once more
		return q.answer(ctx, request, queued, row)
	case <-timer.C:
		request.start.Wait = 0
		row, err := q.leave(ctx, queued.waiter, served)
		if err != nil {
			return claimed{}, err
		}
		return q.answer(ctx, request, queued, row)
	case <-ctx.Done():
		cause := departed(ctx.Err())
		q.abandon(ctx, queued.waiter, served)
		return claimed{}, cause
	}
}

func (q *queue) enter(ctx context.Context, id int64, served chan waiterRow) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting[id] = served
	if !q.polling {
		q.polling = true
		q.running.Go(func() { q.poll(context.WithoutCancel(ctx)) })
	}
	return true
}

// poll hands out what waiters got until none is left.
func (q *queue) poll(ctx context.Context) {
	ticker := time.NewTicker(queuePoll)
	defer ticker.Stop()
	for n := 0; ; n++ {
		if n%int(queueServe/queuePoll) == 0 {
			q.serve(ctx)
		}
		q.mu.Lock()
		if len(q.waiting) == 0 || q.closed {
			q.polling = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		q.deliver(ctx)
		<-ticker.C
	}
}

// serve is the queue's own turn: waiters that were queued under an earlier presence become this one's, and those whose
// turn it is are served. An error is the database's, which every waiter will meet.
func (q *queue) serve(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if process := q.process.Load(); process != 0 {
		_ = q.store.exec(limited, "waiter_adopt", q.ids(), process)
	}
	_ = q.store.exec(limited, "waiter_serve", berth.MaxBatch)
}

func (q *queue) deliver(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	served, err := collect[servedRow](limited, q.store, "waiter_served", q.process.Load())
	ids := q.known(served)
	if err != nil || len(ids) == 0 {
		return // asked again at the next tick
	}
	rows, err := write[waiterRow](limited, q.store, "waiter_leave", ids)
	if err != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, row := range rows {
		if answer, here := q.waiting[row.ID]; here {
			answer <- row
			delete(q.waiting, row.ID)
		}
	}
}

type servedRow struct{ ID int64 }

// known are the served ones whose callers are here. Others are of callers that are about to enter.
func (q *queue) known(served []servedRow) []int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	var ids []int64
	for _, row := range served {
		if _, here := q.waiting[row.ID]; here {
			ids = append(ids, row.ID)
		}
	}
	return ids
}

// leave takes a waiter out of the queue. It may have been served at the same time.
func (q *queue) leave(ctx context.Context, id int64, served <-chan waiterRow) (waiterRow, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	defer q.forget(id)
	rows, err := write[waiterRow](ctx, q.store, "waiter_leave", []int64{id})
	if err != nil {
		return waiterRow{}, err
	}
	if len(rows) == 1 {
		return rows[0], nil
	}
	select { // the poll has the row already
	case row := <-served:
		return row, nil
	case <-ctx.Done():
		return waiterRow{}, departed(ctx.Err())
	}
}

func (q *queue) forget(id int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, id)
}

// abandon is leave for a caller that is gone. Its slots, if it has any, are free again at once.
func (q *queue) abandon(ctx context.Context, id int64, served <-chan waiterRow) {
	row, err := q.leave(ctx, id, served)
	if err != nil || row.SessionKey == nil || deref(row.Outcome) != "created" {
		return // the row's deadline or the session's connect_by ends what is left
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	if session, err := q.store.SessionByKey(ctx, berth.SessionKey(*row.SessionKey)); err == nil {
		q.store.releaseUnseen(ctx, []berth.Session{session})
	}
}

// answer turns what a waiter got into what its caller is told.
func (q *queue) answer(ctx context.Context, request claimRequest, queued claimed, row waiterRow) (claimed, error) {
	limits := queued.placement.Limits
	answer := claimRow{Outcome: "at_capacity", At: row.At, Quota: limits.MaxConcurrent, StartRate: &limits.StartRate}
	if row.Outcome == nil {
		return claimed{refusal: errAtCapacity(), placement: queued.placement}, nil
	}
	answer.Outcome, answer.SessionKey, answer.Replayed = *row.Outcome, row.SessionKey, deref(row.Replayed)
	answer.PeerID, answer.PeerRole, answer.PeerCreated = &row.PeerID, &row.Role, deref(row.PeerFresh)
	switch answer.Outcome {
	case "created", "replaced", "existing":
	default:
		return claimed{refusal: answer.refusal(), placement: queued.placement}, nil
	}
	session, err := q.store.SessionByKey(ctx, berth.SessionKey(deref(row.SessionKey)))
	if err != nil {
		return claimed{}, err
	}
	switch {
	case session.State == berth.SessionEnded:
		return claimed{refusal: errSessionEnded(), placement: queued.placement}, nil
	case !session.State.HoldsSlot(): // it lost its worker meanwhile
		key := int64(session.Key)
		return q.store.place(ctx, claimRequest{start: request.start, only: &key})
	}
	placement := answer.placement(session)
	placement.Limits = limits
	placement.Created = answer.Outcome == "created"
	return claimed{placement: placement, peerCreated: answer.PeerCreated || placement.Created}, nil
}

// close waits for the poll to end. Callers have left by then, or will.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.running.Wait()
}
