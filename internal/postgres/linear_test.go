package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// The linearizability check records what several processes ask of the same few slots, and when, and searches for an
// order in which one process alone would have got the same answers. Each worker stands in a region of its own, so that
// it has a history of its own.

const (
	linearWorkers   = 3
	linearCapacity  = 3
	linearProcesses = 6
	linearIDs       = 5
)

// berthOp is one call about one worker.
type berthOp struct {
	worker     int
	kind       string // place, end, expire, drain, undrain
	id         int
	generation berth.Generation // of what is ended
}

// berthAnswer is what it was answered: a placement's generation, or a refusal.
type berthAnswer struct {
	generation berth.Generation
	created    bool
}

// berthState is one worker as one process alone would see it.
type berthState struct {
	closed      bool
	generations [linearIDs]berth.Generation // of the live sessions
}

func (s berthState) used() (n int) {
	for _, generation := range s.generations {
		if generation != 0 {
			n++
		}
	}
	return n
}

func (s berthState) step(op berthOp, answer berthAnswer) (bool, berthState) {
	live := s.generations[op.id]
	switch op.kind {
	case "drain", "undrain":
		s.closed = op.kind == "drain"
		return true, s
	case "end", "expire":
		if live == op.generation {
			s.generations[op.id] = 0
		}
		return true, s
	}
	switch {
	case answer.generation == 0:
		return live == 0 && (s.closed || s.used() == linearCapacity), s
	case !answer.created:
		return live == answer.generation, s
	default:
		fits := live == 0 && !s.closed && s.used() < linearCapacity
		s.generations[op.id] = answer.generation
		return fits, s
	}
}

// berthModel checks each worker's history alone.
var berthModel = porcupine.Model{
	Init: func() any { return berthState{} },
	Step: func(state, input, output any) (bool, any) {
		s, known := state.(berthState)
		op, asked := input.(berthOp)
		answer, answered := output.(berthAnswer)
		if !known || !asked || !answered {
			return false, state
		}
		return s.step(op, answer)
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, linearWorkers)
		for _, op := range history {
			if about, ok := op.Input.(berthOp); ok {
				parts[about.worker] = append(parts[about.worker], op)
			}
		}
		return parts
	},
}

// recorder is the history of one round.
type recorder struct {
	rig   *rig
	round int
	began time.Time

	mu      sync.Mutex // guards the rest
	history []porcupine.Operation
}

func (h *recorder) region(worker int) string { return fmt.Sprintf("r%d-%d", h.round, worker) }

func (h *recorder) record(client int, op berthOp, call func() (berthAnswer, error)) error {
	called := time.Since(h.began)
	answer, err := call()
	if err != nil {
		return fmt.Errorf("%+v: %w", op, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.history = append(h.history, porcupine.Operation{
		ClientId: client, Input: op, Call: int64(called), Output: answer, Return: int64(time.Since(h.began)),
	})
	return nil
}

// client is one process of the check.
type client struct {
	*recorder

	number int
	store  *postgres.Store
	random *rand.Rand
}

func (c *client) step(ctx context.Context) error {
	op := berthOp{worker: c.random.IntN(linearWorkers), id: c.random.IntN(linearIDs)}
	switch n := c.random.IntN(20); {
	case n < 10:
		op.kind = "place"
		return c.record(c.number, op, func() (berthAnswer, error) { return c.place(ctx, op) })
	case n < 17:
		return c.finish(ctx, op, n < 14)
	default:
		op.kind = []string{"drain", "undrain", "undrain"}[n-17]
		return c.record(c.number, op, func() (berthAnswer, error) { return berthAnswer{}, c.drain(ctx, op) })
	}
}

func (c *client) name(op berthOp) string { return fmt.Sprintf("r%d-%d-%d", c.round, op.worker, op.id) }

func (c *client) place(ctx context.Context, op berthOp) (berthAnswer, error) {
	s := start(c.name(op))
	s.Region, s.Spill = c.region(op.worker), false
	placed, err := c.store.Place(ctx, s)
	if berth.RefusalCode(err) == berth.CodeAtCapacity {
		return berthAnswer{}, nil
	}
	return berthAnswer{generation: placed.Session.Generation, created: placed.Created}, err
}

func (c *client) drain(ctx context.Context, op berthOp) (err error) {
	if op.kind == "drain" {
		_, err = c.store.DrainWorker(ctx, c.region(op.worker), time.Hour, false)
	} else {
		_, err = c.store.UndrainWorker(ctx, c.region(op.worker))
	}
	return err
}

// finish ends the session that an id has now, if it has one, by its owner's word or by its deadline.
func (c *client) finish(ctx context.Context, op berthOp, byOwner bool) error {
	session, _, err := c.store.Session(ctx, "t1", c.name(op))
	if err != nil || session.State == berth.SessionEnded {
		if berth.RefusalCode(err) == berth.CodeNotFound {
			return nil
		}
		return err
	}
	op.generation = session.Generation
	if byOwner {
		op.kind = "end"
		return c.record(c.number, op, func() (berthAnswer, error) {
			return berthAnswer{}, c.store.EndSessions(ctx, []berth.End{{Held: heldOf(session), Reason: berth.EndedLeft}})
		})
	}
	op.kind = "expire"
	return c.record(c.number, op, func() (berthAnswer, error) { return berthAnswer{}, c.expire(ctx, session) })
}

// expire lets a session's deadline pass, and the reaper see it.
func (c *client) expire(ctx context.Context, session berth.Session) error {
	_, err := c.rig.db.Pool.Exec(ctx, `update berth.sessions set connect_by = clock_timestamp() - interval '1 s'
		where key = $1 and state = 'assigned'`, int64(session.Key))
	for err == nil {
		if _, err = c.store.EndOverdue(ctx, 10); err != nil {
			break
		}
		if session, err = c.store.SessionByKey(ctx, session.Key); session.State == berth.SessionEnded {
			break
		}
	}
	return err
}

// linearRound lets the processes run for a while, and checks the history of each worker.
func (r *rig) linearRound(round int, d time.Duration, seed uint64, stores []*postgres.Store) (operations int) {
	r.Helper()
	h := &recorder{rig: r, round: round, began: time.Now()}
	for n := range linearWorkers {
		r.region(h.region(n))
		r.registered(berth.Registration{WorkerID: h.region(n), Region: h.region(n), Capacity: linearCapacity, Lease: lease})
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	var running sync.WaitGroup
	for i := range linearProcesses {
		running.Go(func() {
			c := &client{recorder: h, number: i, store: stores[i%3], random: rand.New(rand.NewPCG(seed, uint64(round*100+i)))}
			for ctx.Err() == nil {
				if err := c.step(r.Context()); err != nil {
					r.Errorf("round %d, process %d: %v", round, i, err)
					return
				}
			}
		})
	}
	running.Wait()
	for n, part := range berthModel.Partition(h.history) {
		switch porcupine.CheckOperationsTimeout(berthModel, part, time.Minute) {
		case porcupine.Illegal:
			r.Errorf("round %d: no order explains what worker %d answered:\n%s", round, n, describe(part))
		case porcupine.Unknown:
			r.Errorf("round %d: the history of worker %d, %d calls, took over a minute to check", round, n, len(part))
		}
	}
	return len(h.history)
}

// describe lists calls in the order in which they began.
func describe(history []porcupine.Operation) string {
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, op := range history {
		fmt.Fprintf(&text, "%v - %v process %d: %+v: %+v\n",
			time.Duration(op.Call), time.Duration(op.Return), op.ClientId, op.Input, op.Output)
	}
	return text.String()
}

// The check itself: four sessions on three slots, and a refusal beside a free one, are explained by no order.
func TestLinearCheckFindsWhatCannotBe(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string][]berthAnswer{
		"over-commitment": {{1, true}, {2, true}, {3, true}, {4, true}},
		"false refusal":   {{1, true}, {2, true}, {}},
		"two of one id":   {{1, true}, {2, true}, {3, true}, {9, false}},
	} {
		var history []porcupine.Operation
		for n, answer := range calls {
			history = append(history, porcupine.Operation{
				Input: berthOp{kind: "place", id: n}, Call: int64(10 * n), Output: answer, Return: int64(10*n + 15),
			})
		}
		if porcupine.CheckOperations(berthModel, history) {
			t.Errorf("%s: passed", name)
		}
	}
}

func TestProof_PlaceReleaseAndExpireAreLinearizable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seed := uint64(testkit.Seed(t))
	stores := r.stores(3)
	operations, rounds := 0, 0
	ends := time.Now().Add(proofTime(t, 2*time.Second, 0.15))
	for ; (rounds == 0 || time.Now().Before(ends)) && !t.Failed(); rounds++ {
		operations += r.linearRound(rounds, min(time.Until(ends), 2*time.Second), seed, stores)
	}
	t.Logf("linearizable: %d calls in %d rounds of %d processes on %d workers", operations, rounds, linearProcesses, linearWorkers)
	if n := r.deadlocks(); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}
