package postgres_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

// What happens to the workers of the state machine; see machine_test.go.

// Register starts a new instance, with another capacity and perhaps in another region.
func (m *machine) Register(t *rapid.T) {
	id := m.prefix + rapid.SampledFrom([]string{"-w1", "-w2", "-w3", "-w4"}).Draw(t, "worker")
	number, err := m.store().NextInstance(t.Context())
	m.rig.ok(err)
	w := &modelWorker{
		region: m.prefix + rapid.SampledFrom([]string{"-eu", "-us"}).Draw(t, "region"), state: berth.WorkerReady,
		instance: number, capacity: rapid.IntRange(0, 5).Draw(t, "capacity"),
	}
	held, err := m.rig.register(instance{id: id, number: number}, w.region, w.capacity)
	if err != nil || held {
		t.Fatalf("held %v, %v", held, err)
	}
	if err := m.store().Open(t.Context(), id, number); err != nil {
		t.Fatal(err)
	}
	m.workers[id] = w
	m.displace(id)
}

// displace is what happens to a worker's sessions when they lose it.
func (m *machine) displace(worker string) {
	for id, s := range m.sessions {
		switch {
		case s.worker != worker || !s.state.HoldsSlot():
		case s.onLoss == berth.LossEnd:
			delete(m.sessions, id)
		default:
			s.state, s.last, s.worker = berth.SessionAwaitingRejoin, worker, ""
		}
	}
}

// Drain drains a worker, Undrain takes it back.
func (m *machine) Drain(t *rapid.T) {
	id, w := m.drawWorker(t)
	got, err := m.store().DrainWorker(t.Context(), id, time.Hour, rapid.Bool().Draw(t, "override"))
	if w.state == berth.WorkerReady {
		w.state = berth.WorkerDraining
	}
	if err != nil || got.State != w.state {
		t.Fatalf("got %+v, %v; want %s", got, err, w.state)
	}
}

// Undrain takes a drain back.
func (m *machine) Undrain(t *rapid.T) {
	id, w := m.drawWorker(t)
	got, err := m.store().UndrainWorker(t.Context(), id)
	if w.state == berth.WorkerDraining {
		w.state = berth.WorkerReady
	}
	if err != nil || got.State != w.state {
		t.Fatalf("got %+v, %v; want %s", got, err, w.state)
	}
}

// Leave is a worker's goodbye.
func (m *machine) Leave(t *rapid.T) {
	id, w := m.drawWorker(t)
	if w.state == berth.WorkerLost {
		t.Skip("it is lost")
	}
	if err := m.store().Leave(t.Context(), id, w.instance); err != nil {
		t.Fatal(err)
	}
	w.state, w.cordoned = berth.WorkerGone, false
	m.displace(id)
}

// Lose is the reaper's verdict on a worker.
func (m *machine) Lose(t *rapid.T) {
	id, w := m.drawWorker(t)
	tick := m.rig.tick()
	if err := m.store().OpenGap(t.Context(), tick.Number, id, w.instance, "test", 0); err != nil {
		t.Fatal(err)
	}
	lost, err := m.store().MarkLost(t.Context(), tick.Number, id, w.instance, "test")
	if err != nil || lost != w.state.Serving() {
		t.Fatalf("lost %v, %v; it was %s", lost, err, w.state)
	}
	if !lost {
		m.rig.ok(m.store().ClearGap(t.Context(), tick.Number, id, w.instance))
		return
	}
	if _, err := m.store().DisplaceLost(t.Context(), id, w.instance, 100); err != nil {
		t.Fatal(err)
	}
	w.state, w.cordoned = berth.WorkerLost, false
	m.displace(id)
}

// Pause lets a lease run out, and Renew ends the cordon that follows.
func (m *machine) Pause(t *rapid.T) {
	id, w := m.drawWorker(t)
	m.rig.late(id)
	tick := m.rig.tickAfterLook()
	cordoned, err := m.store().CordonLate(t.Context(), tick.Number, id, w.instance)
	want := !w.cordoned && (w.state == berth.WorkerReady || w.state == berth.WorkerDraining)
	if err != nil || cordoned != want {
		t.Fatalf("cordoned %v, %v; it is %+v", cordoned, err, w)
	}
	w.cordoned = w.cordoned || want
}

// Renew renews a lease.
func (m *machine) Renew(t *rapid.T) {
	id, w := m.drawWorker(t)
	answer, err := m.store().Renew(t.Context(), berth.Renewal{WorkerID: id, Instance: w.instance, Lease: lease})
	if err != nil || (answer.Verdict == berth.RenewalYours) != w.state.Serving() {
		t.Fatalf("got %+v, %v; it is %s", answer, err, w.state)
	}
	w.cordoned = false
}

// Replace places at once what asked for it.
func (m *machine) Replace(t *rapid.T) {
	if _, err := m.store().ReplaceLost(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.sessions {
		row := m.rig.session(s.key)
		if s.state != berth.SessionAwaitingRejoin || row.State != berth.SessionAssigned {
			continue
		}
		if s.onLoss != berth.LossReplace {
			t.Fatalf("%+v was replaced", s)
		}
		m.last = max(m.last, row.Generation)
		m.assign(s, row)
	}
	for _, s := range m.sessions {
		if s.state == berth.SessionAwaitingRejoin && s.onLoss == berth.LossReplace && m.choices(s) != nil {
			t.Fatalf("%+v was not replaced, though a slot is free", s)
		}
	}
}

// Resize registers the same instance with another capacity, which evicts nobody.
func (m *machine) Resize(t *rapid.T) {
	id, w := m.drawWorker(t)
	if !w.state.Serving() {
		t.Skip("it is over")
	}
	w.capacity = rapid.IntRange(0, 8).Draw(t, "capacity")
	held, err := m.rig.register(instance{id: id, number: w.instance}, w.region, w.capacity)
	if err != nil || held {
		t.Fatalf("held %v, %v", held, err)
	}
	if err := m.store().Open(t.Context(), id, w.instance); err != nil {
		t.Fatal(err)
	}
	w.state, w.cordoned = berth.WorkerReady, false
}

func TestCapacityChangesEvictNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 10)
	for _, id := range ids("s", 8) {
		r.place(start(id))
	}
	resize := func(capacity, free int) {
		t.Helper()
		held, err := r.register(w, "eu", capacity)
		if err != nil || held {
			t.Fatalf("held %v, %v", held, err)
		}
		r.ok(r.store.Open(t.Context(), w.id, w.number))
		if got := r.free(); got != free || r.live("t1") != 8 {
			t.Errorf("at %d slots: %d free, want %d; %d live", capacity, got, free, r.live("t1"))
		}
	}
	resize(4, 0)
	r.placeRefused(berth.CodeAtCapacity, start("no-room"))
	for _, id := range ids("s", 4) {
		_, err := r.store.EndSession(t.Context(), "t1", id)
		r.ok(err)
	}
	r.placeRefused(berth.CodeAtCapacity, start("no-room"))
	for _, id := range ids("n", 4) { // as many as there were, once there is room again
		if id == "n000" {
			_, err := r.register(w, "eu", 10)
			r.ok(err)
			r.ok(r.store.Open(t.Context(), w.id, w.number))
		}
		r.place(start(id))
	}
	resize(4, 0)
	resize(10, 2)
}
