package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// The second state machine is about the line: who waits, and who gets the next slot. Its calls come one after another,
// and after each the line is what the model says.

type modelWaiter struct {
	start  berth.Start
	round  int
	leave  context.CancelFunc
	answer chan error
}

type modelPlace struct{ tenant, worker string }

// queueMachine holds the model: tenants take turns, and inside a tenant it is first come, first served.
type queueMachine struct {
	rig     *rig
	stores  []*postgres.Store
	turn    int
	prefix  string
	workers map[string]*modelWorker // in one region; a cordon means that it has a label
	places  map[string]modelPlace   // by session
	line    []*modelWaiter          // in the order of turns
	served  int                     // the last round that was served
	names   int
}

func (m *queueMachine) store() *postgres.Store {
	m.turn++
	return m.stores[m.turn%len(m.stores)]
}

// room is a worker that has a slot for a start, or "".
func (m *queueMachine) room(s berth.Start) string {
	for id, w := range m.workers {
		used := 0
		for _, p := range m.places {
			if p.worker == id {
				used++
			}
		}
		if used < w.capacity && (len(s.Selector) == 0 || w.cordoned) {
			return id
		}
	}
	return ""
}

// Join1 and Join2 start a session, which waits if there is no room.
func (m *queueMachine) Join1(t *rapid.T) { m.join(t) }
func (m *queueMachine) Join2(t *rapid.T) { m.join(t) }

func (m *queueMachine) join(t *rapid.T) {
	m.names++
	s := startOf(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), fmt.Sprintf("%s-%d", m.prefix, m.names))
	s.Region, s.Spill, s.Wait = m.prefix, false, 30*time.Second
	if rapid.IntRange(0, 3).Draw(t, "labelled") == 0 {
		s.Selector = map[string]string{"gpu": "yes"}
	}
	if m.room(s) != "" {
		placed, err := m.store().Place(t.Context(), s)
		if err != nil {
			t.Fatalf("%s found no room: %v", s.ID, err)
		}
		m.places[s.ID] = modelPlace{s.TenantID, placed.Session.WorkerID}
		return
	}
	ctx, leave := context.WithCancel(m.rig.Context())
	w := &modelWaiter{start: s, round: m.round(s.TenantID), leave: leave, answer: make(chan error, 1)}
	store := m.store()
	go func() {
		_, err := store.Place(ctx, s)
		w.answer <- err
	}()
	at := len(m.line)
	for at > 0 && m.line[at-1].round > w.round {
		at--
	}
	m.line = slices.Insert(m.line, at, w)
	m.settle(t)
}

// round is the turn of a tenant's next waiter: the one after its last, or the one that is on.
func (m *queueMachine) round(tenant string) int {
	round := m.served + 1
	if len(m.line) > 0 {
		round = max(round, m.line[0].round)
	}
	for _, w := range m.line {
		if w.start.TenantID == tenant {
			round = max(round, w.round+1)
		}
	}
	return round
}

// Leave lets a caller go.
func (m *queueMachine) Leave(t *rapid.T) {
	if len(m.line) == 0 {
		t.Skip("nobody waits")
	}
	n := rapid.IntRange(0, len(m.line)-1).Draw(t, "place in line")
	w := m.line[n]
	m.line = slices.Delete(m.line, n, n+1)
	w.leave()
	if err := <-w.answer; !errors.Is(err, context.Canceled) {
		t.Fatalf("%s left and got %v", w.start.ID, err)
	}
	m.settle(t)
}

// End1 and End2 end a session.
func (m *queueMachine) End1(t *rapid.T) { m.end(t) }
func (m *queueMachine) End2(t *rapid.T) { m.end(t) }

func (m *queueMachine) end(t *rapid.T) {
	if len(m.places) == 0 {
		t.Skip("no session")
	}
	var known []string
	for id := range m.places {
		known = append(known, id)
	}
	slices.Sort(known)
	id := rapid.SampledFrom(known).Draw(t, "session")
	if _, err := m.store().EndSession(t.Context(), m.places[id].tenant, id); err != nil {
		t.Fatal(err)
	}
	delete(m.places, id)
	m.settle(t)
}

// Open starts another worker.
func (m *queueMachine) Open(t *rapid.T) {
	if len(m.workers) == 4 {
		t.Skip("enough")
	}
	id := fmt.Sprintf("%s-w%d", m.prefix, len(m.workers))
	w := &modelWorker{capacity: rapid.IntRange(1, 2).Draw(t, "capacity"), cordoned: rapid.Bool().Draw(t, "labelled")}
	registration := berth.Registration{WorkerID: id, Region: m.prefix, Capacity: w.capacity, Lease: lease}
	if w.cordoned {
		registration.Labels = map[string]string{"gpu": "yes"}
	}
	m.rig.registered(registration)
	m.workers[id] = w
	m.settle(t)
}

// settle serves the model's line, waits until each of those served is told, and compares what is left.
func (m *queueMachine) settle(t *rapid.T) {
	var left []*modelWaiter
	for _, w := range m.line {
		worker := m.room(w.start)
		if worker == "" {
			left = append(left, w)
			continue
		}
		m.places[w.start.ID] = modelPlace{w.start.TenantID, worker}
		m.served = max(m.served, w.round)
		select {
		case err := <-w.answer:
			if err != nil {
				t.Fatalf("it is the turn of %s, which got %v", w.start.ID, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("it is the turn of %s, which waits", w.start.ID)
		}
	}
	m.line = left
	want := []string{}
	for _, w := range left {
		want = append(want, w.start.ID)
	}
	testkit.Eventually(m.rig.T, 10*time.Second, func() error { // whoever joins is a moment on the way
		rows, err := m.rig.db.Pool.Query(m.rig.Context(), "select session_id from berth.queue order by turn")
		if err != nil {
			return err
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%v wait, want %v", got, want)
		}
		return err
	})
}

// Check looks whether somebody was served who was not to be.
func (m *queueMachine) Check(t *rapid.T) {
	for _, w := range m.line {
		select {
		case err := <-w.answer:
			t.Fatalf("%s is in the line, and got %v", w.start.ID, err)
		default:
		}
	}
	if err := noViolations(t.Context(), m.rig.db.Pool); err != nil {
		t.Fatal(err)
	}
}

// clear empties the line for the next run, and ends what this one placed, before its deadlines come.
func (m *queueMachine) clear() {
	for id, p := range m.places {
		defer func() {
			if _, err := m.store().EndSession(m.rig.Context(), p.tenant, id); err != nil {
				m.rig.Errorf("end %s: %v", id, err)
			}
		}()
	}
	for _, w := range m.line {
		w.leave()
		if err := <-w.answer; err != nil && !errors.Is(err, context.Canceled) {
			m.rig.Errorf("%s left and got %v", w.start.ID, err)
		}
	}
}

func TestProof_LineBehavesAsTheModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"a", "b", "c"} {
		r.tenant(id)
	}
	stores := r.attended(3)
	number := 0
	ends := time.Now().Add(proofTime(t, 3*time.Second, 0.05))
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(ends) {
			return
		}
		number++
		m := &queueMachine{
			rig: r, stores: stores, prefix: fmt.Sprintf("q%d", number), workers: map[string]*modelWorker{},
			places: map[string]modelPlace{},
		}
		r.region(m.prefix)
		defer m.clear()
		rt.Repeat(rapid.StateMachineActions(m))
	})
	t.Logf("the line as the model: %d runs of three processes", number)
}
