package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

// The state machine compares the store with a model of workers, slots, quotas and sessions after random calls, one
// after another. What only shows when calls overlap is in stress_test.go.

type modelWorker struct {
	region   string
	state    berth.WorkerState
	instance berth.Instance
	capacity int
	cordoned bool
}

type modelSession struct {
	key        berth.SessionKey
	state      berth.SessionState
	worker     string
	last       string
	region     string // asked for
	spill      bool
	generation berth.Generation
	onLoss     berth.OnWorkerLoss
}

type modelID struct{ tenant, id string }

// machine holds the model. Names differ per check, since checks share a database.
type machine struct {
	rig      *rig
	prefix   string
	quotas   map[string]int
	spill    map[string][]string
	workers  map[string]*modelWorker
	sessions map[modelID]*modelSession
	last     berth.Generation
}

func newMachine(r *rig, number int) *machine {
	m := &machine{rig: r, prefix: fmt.Sprintf("m%d", number), workers: map[string]*modelWorker{}, sessions: map[modelID]*modelSession{}}
	m.quotas = map[string]int{m.prefix + "-few": 3, m.prefix + "-many": 1000}
	m.spill = map[string][]string{m.prefix + "-eu": {m.prefix + "-us"}, m.prefix + "-us": nil}
	r.region(m.prefix + "-us")
	r.region(m.prefix+"-eu", m.prefix+"-us")
	for tenant, quota := range m.quotas {
		r.quota(tenant, quota)
	}
	return m
}

func (m *machine) used(worker string) (n int) {
	for _, s := range m.sessions {
		if s.state.HoldsSlot() && s.worker == worker {
			n++
		}
	}
	return n
}

func (m *machine) liveOf(tenant string) (n int) {
	for id := range m.sessions {
		if id.tenant == tenant {
			n++
		}
	}
	return n
}

func (m *machine) fits(worker string) bool {
	w := m.workers[worker]
	return w.state == berth.WorkerReady && !w.cordoned && m.used(worker) < w.capacity
}

// choices are the workers that a placement may go to: the least-loaded of the first region that has a slot, avoiding
// the last worker if another fits.
func (m *machine) choices(region string, spill bool, avoid string) []string {
	regions := []string{region}
	if spill {
		regions = append(regions, m.spill[region]...)
	}
	for _, avoided := range []string{avoid, ""} {
		for _, region := range regions {
			if best := m.leastLoaded(region, avoided); len(best) > 0 {
				return best
			}
		}
	}
	return nil
}

func (m *machine) leastLoaded(region, avoid string) (best []string) {
	least := 2.0
	for id, w := range m.workers {
		if w.region != region || id == avoid || !m.fits(id) {
			continue
		}
		switch load := float64(m.used(id)+1) / float64(w.capacity); {
		case load < least:
			least, best = load, []string{id}
		case load == least:
			best = append(best, id)
		}
	}
	return best
}

func (m *machine) drawWorker(t *rapid.T) (string, *modelWorker) {
	var known []string
	for id := range m.workers {
		known = append(known, id)
	}
	if len(known) == 0 {
		t.Skip("no worker yet")
	}
	slices.Sort(known)
	id := rapid.SampledFrom(known).Draw(t, "worker")
	return id, m.workers[id]
}

func (m *machine) drawSession(t *rapid.T) (modelID, *modelSession) {
	var known []modelID
	for id := range m.sessions {
		known = append(known, id)
	}
	if len(known) == 0 {
		t.Skip("no session yet")
	}
	slices.SortFunc(known, func(a, b modelID) int { return int(m.sessions[a].key - m.sessions[b].key) })
	id := rapid.SampledFrom(known).Draw(t, "session")
	return id, m.sessions[id]
}

// Start starts a session, or asks for a live one.
func (m *machine) Start(t *rapid.T) {
	id := modelID{
		tenant: m.prefix + rapid.SampledFrom([]string{"-few", "-many"}).Draw(t, "tenant"),
		id:     rapid.SampledFrom(ids("s", 12)).Draw(t, "id"),
	}
	s := startOf(id.tenant, id.id)
	s.Region = m.prefix + rapid.SampledFrom([]string{"-eu", "-us"}).Draw(t, "region")
	s.Spill = rapid.Bool().Draw(t, "spill")
	s.OnWorkerLoss = rapid.SampledFrom([]berth.OnWorkerLoss{berth.LossRejoin, berth.LossReplace, berth.LossEnd}).Draw(t, "on loss")
	known := m.sessions[id]
	var choices []string
	switch {
	case known == nil:
		choices = m.choices(s.Region, s.Spill, "")
	case known.state == berth.SessionAwaitingRejoin:
		choices = m.choices(known.region, known.spill, known.last)
	}
	placed, err := m.rig.store.Place(t.Context(), s)
	switch {
	case known != nil && known.state.HoldsSlot():
		if err != nil || placed.Created || placed.Session.Generation != known.generation || placed.Session.WorkerID != known.worker {
			t.Fatalf("a live id: got %+v, %v; want %+v", placed, err, known)
		}
	case known == nil && m.liveOf(id.tenant) >= m.quotas[id.tenant]:
		m.want(t, err, berth.CodeConcurrentSessions)
	case len(choices) == 0:
		m.want(t, err, berth.CodeAtCapacity)
	default:
		m.placed(t, placed, err, choices)
		if placed.Created != (known == nil) {
			t.Fatalf("created %v, known %+v", placed.Created, known)
		}
		if known == nil {
			m.sessions[id] = &modelSession{region: s.Region, spill: s.Spill, onLoss: s.OnWorkerLoss}
		}
		m.assign(m.sessions[id], placed.Session)
	}
}

func (m *machine) want(t *rapid.T, err error, code berth.Code) {
	if berth.RefusalCode(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func (m *machine) placed(t *rapid.T, placed berth.Placement, err error, choices []string) {
	switch s := placed.Session; {
	case err != nil:
		t.Fatalf("refused with %v, but %v fit", err, choices)
	case !slices.Contains(choices, s.WorkerID):
		t.Fatalf("placed on %s, want one of %v", s.WorkerID, choices)
	case s.Generation <= m.last:
		t.Fatalf("generation %d after %d", s.Generation, m.last)
	}
	m.last = placed.Session.Generation
}

func (m *machine) assign(s *modelSession, row berth.Session) {
	s.key, s.state, s.worker, s.generation = row.Key, berth.SessionAssigned, row.WorkerID, row.Generation
}

// Rejoin lets a peer come back.
func (m *machine) Rejoin(t *rapid.T) {
	_, s := m.drawSession(t)
	choices := m.choices(s.region, s.spill, s.last)
	answer, err := m.rig.store.Rejoin(t.Context(), berth.Rejoin{Key: s.key, PeerID: "p1", Generation: s.generation, Lost: true})
	switch {
	case s.state != berth.SessionAwaitingRejoin: // nobody holds a presence lock here, so every owner is in question
		if err != nil || answer.Outcome != berth.RejoinHold {
			t.Fatalf("got %+v, %v", answer, err)
		}
	case len(choices) == 0:
		m.want(t, err, berth.CodeAtCapacity)
	default:
		m.placed(t, answer.Placement, err, choices)
		m.assign(s, answer.Placement.Session)
	}
}

// Connect connects the first peer.
func (m *machine) Connect(t *rapid.T) {
	_, s := m.drawSession(t)
	if !s.state.HoldsSlot() {
		t.Skip("it has no owner")
	}
	row := berth.Session{Key: s.key, Generation: s.generation, WorkerID: s.worker, Instance: m.workers[s.worker].instance}
	if _, err := m.rig.store.ConnectPeer(t.Context(), connectOf(row, "p1", "c")); err != nil {
		t.Fatal(err)
	}
	s.state = berth.SessionActive
}

// End ends a session, for its tenant or by its owner's word.
func (m *machine) End(t *rapid.T) {
	id, s := m.drawSession(t)
	if rapid.Bool().Draw(t, "by tenant") {
		if _, err := m.rig.store.EndSession(t.Context(), id.tenant, id.id); err != nil {
			t.Fatal(err)
		}
		delete(m.sessions, id)
		return
	}
	stale := rapid.Bool().Draw(t, "stale")
	generation := s.generation
	if stale {
		generation--
	}
	end := berth.End{Held: berth.Held{Key: s.key, Generation: generation}, Reason: berth.EndedLeft}
	if err := m.rig.store.EndSessions(t.Context(), []berth.End{end}); err != nil {
		t.Fatal(err)
	}
	if !stale && s.state.HoldsSlot() {
		delete(m.sessions, id)
	}
}

// Overdue lets a deadline pass.
func (m *machine) Overdue(t *rapid.T) {
	id, s := m.drawSession(t)
	column := map[berth.SessionState]string{
		berth.SessionAssigned: "connect_by", berth.SessionActive: "expires_at", berth.SessionAwaitingRejoin: "rejoin_by",
	}[s.state]
	m.rig.overdue(s.key, column)
	if n, err := m.rig.store.EndOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("ended %d, %v", n, err)
	}
	delete(m.sessions, id)
}

// Register starts a new instance, with another capacity and perhaps in another region.
func (m *machine) Register(t *rapid.T) {
	id := m.prefix + rapid.SampledFrom([]string{"-w1", "-w2", "-w3", "-w4"}).Draw(t, "worker")
	number, err := m.rig.store.NextInstance(t.Context())
	m.rig.ok(err)
	w := &modelWorker{
		region: m.prefix + rapid.SampledFrom([]string{"-eu", "-us"}).Draw(t, "region"), state: berth.WorkerReady,
		instance: number, capacity: rapid.IntRange(0, 5).Draw(t, "capacity"),
	}
	held, err := m.rig.register(instance{id: id, number: number}, w.region, w.capacity)
	if err != nil || held {
		t.Fatalf("held %v, %v", held, err)
	}
	if err := m.rig.store.Open(t.Context(), id, number); err != nil {
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
	got, err := m.rig.store.DrainWorker(t.Context(), id, time.Hour, rapid.Bool().Draw(t, "override"))
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
	got, err := m.rig.store.UndrainWorker(t.Context(), id)
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
	if err := m.rig.store.Leave(t.Context(), id, w.instance); err != nil {
		t.Fatal(err)
	}
	w.state, w.cordoned = berth.WorkerGone, false
	m.displace(id)
}

// Lose is the reaper's verdict on a worker.
func (m *machine) Lose(t *rapid.T) {
	id, w := m.drawWorker(t)
	tick := m.rig.tick()
	if err := m.rig.store.OpenGap(t.Context(), tick.Number, id, w.instance, "test"); err != nil {
		t.Fatal(err)
	}
	lost, err := m.rig.store.MarkLost(t.Context(), tick.Number, id, w.instance, "test")
	if err != nil || lost != w.state.Serving() {
		t.Fatalf("lost %v, %v; it was %s", lost, err, w.state)
	}
	if !lost {
		m.rig.ok(m.rig.store.ClearGap(t.Context(), id, w.instance))
		return
	}
	if _, err := m.rig.store.DisplaceLost(t.Context(), id, w.instance, 100); err != nil {
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
	cordoned, err := m.rig.store.CordonLate(t.Context(), tick.Number, id, w.instance)
	want := !w.cordoned && (w.state == berth.WorkerReady || w.state == berth.WorkerDraining)
	if err != nil || cordoned != want {
		t.Fatalf("cordoned %v, %v; it is %+v", cordoned, err, w)
	}
	w.cordoned = w.cordoned || want
}

// Renew renews a lease.
func (m *machine) Renew(t *rapid.T) {
	id, w := m.drawWorker(t)
	answer, err := m.rig.store.Renew(t.Context(), berth.Renewal{WorkerID: id, Instance: w.instance, Lease: lease})
	if err != nil || (answer.Verdict == berth.RenewalYours) != w.state.Serving() {
		t.Fatalf("got %+v, %v; it is %s", answer, err, w.state)
	}
	w.cordoned = false
}

// Replace places at once what asked for it.
func (m *machine) Replace(t *rapid.T) {
	if _, err := m.rig.store.ReplaceLost(t.Context(), 100); err != nil {
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
		if s.state == berth.SessionAwaitingRejoin && s.onLoss == berth.LossReplace && m.choices(s.region, s.spill, s.last) != nil {
			t.Fatalf("%+v was not replaced, though a slot is free", s)
		}
	}
}

// Check compares the tables with the model.
func (m *machine) Check(t *rapid.T) {
	if err := noViolations(t.Context(), m.rig.db.Pool); err != nil {
		t.Fatal(err)
	}
	if n := read[int](m.rig, holes); n > 0 {
		t.Fatalf("%d workers have a free slot below a used one", n)
	}
	for id, w := range m.workers {
		got, err := m.rig.store.Worker(t.Context(), id)
		free := 0
		if m.fits(id) {
			free = w.capacity - m.used(id)
		}
		if err != nil || got.State != w.state || got.Used != m.used(id) || got.Free() != free {
			t.Fatalf("got %+v, %v; want %+v with %d used", got, err, w, m.used(id))
		}
	}
	for id, s := range m.sessions {
		row := m.rig.session(s.key)
		if row.State != s.state || row.WorkerID != s.worker || row.Generation != s.generation || row.ID != id.id {
			t.Fatalf("got %+v, want %+v", row, s)
		}
	}
	for tenant := range m.quotas {
		if live := m.rig.live(tenant); live != m.liveOf(tenant) {
			t.Fatalf("%s has %d live, want %d", tenant, live, m.liveOf(tenant))
		}
	}
}

func TestStoreBehavesAsTheModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		m := newMachine(r, number)
		// Half of what is done is placing; the rest would empty the tables.
		actions := rapid.StateMachineActions(m)
		actions["Start1"], actions["Start2"], actions["Start3"] = m.Start, m.Start, m.Start
		actions["Connect1"] = m.Connect
		rt.Repeat(actions)
	})
}
