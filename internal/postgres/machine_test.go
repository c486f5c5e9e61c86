package postgres_test

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// The state machine compares the store with a model of workers, slots, quotas and sessions after random calls, one
// after another. What only shows when calls overlap is in
// chaos_test.go.

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
	slots      int
	pack       bool
}

type modelID struct{ tenant, id string }

// modelKey is an idempotency key: what it made, and the body that it came with.
type modelKey struct {
	body    byte
	id      modelID
	session berth.SessionKey
}

// machine holds the model. Names differ per check, since checks share a database.
type machine struct {
	rig      *rig
	stores   []*postgres.Store // the API processes
	turn     int
	prefix   string
	quotas   map[string]int
	spill    map[string][]string
	workers  map[string]*modelWorker
	sessions map[modelID]*modelSession
	keys     map[modelID]modelKey
	unmet    map[berth.SessionKey]bool // ended before anybody connected
	last     berth.Generation
}

func newMachine(r *rig, stores []*postgres.Store, number int) *machine {
	m := &machine{
		rig: r, stores: stores, prefix: fmt.Sprintf("m%d", number), workers: map[string]*modelWorker{},
		sessions: map[modelID]*modelSession{}, keys: map[modelID]modelKey{}, unmet: map[berth.SessionKey]bool{},
	}
	m.quotas = map[string]int{m.prefix + "-few": 3, m.prefix + "-many": 1000}
	m.spill = map[string][]string{m.prefix + "-eu": {m.prefix + "-us"}, m.prefix + "-us": nil}
	r.region(m.prefix + "-us")
	r.region(m.prefix+"-eu", m.prefix+"-us")
	for tenant, quota := range m.quotas {
		r.quota(tenant, quota)
	}
	return m
}

// store is the process that has the next call. They take turns.
func (m *machine) store() *postgres.Store {
	m.turn++
	return m.stores[m.turn%len(m.stores)]
}

func (m *machine) used(worker string) (n int) {
	for _, s := range m.sessions {
		if s.state.HoldsSlot() && s.worker == worker {
			n += s.slots
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

func (m *machine) fits(worker string, slots int) bool {
	w := m.workers[worker]
	return w.state == berth.WorkerReady && !w.cordoned && m.used(worker)+slots <= w.capacity
}

// choices are the workers that a placement may go to: the best of the first region that has room, avoiding the last
// worker if another fits.
func (m *machine) choices(s *modelSession) []string {
	regions := []string{s.region}
	if s.spill {
		regions = append(regions, m.spill[s.region]...)
	}
	for _, avoided := range []string{s.last, ""} {
		for _, region := range regions {
			if best := m.best(region, avoided, s); len(best) > 0 {
				return best
			}
		}
	}
	return nil
}

// best are the workers of a region that will be least loaded, or that are fullest.
func (m *machine) best(region, avoid string, s *modelSession) (best []string) {
	least := math.Inf(1)
	for id, w := range m.workers {
		if w.region != region || id == avoid || !m.fits(id, s.slots) {
			continue
		}
		load := float64(m.used(id)+s.slots) / float64(w.capacity)
		if s.pack {
			load = -float64(m.used(id)+1) / float64(w.capacity)
		}
		switch {
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

// drawStart draws a start, and the session that it would be.
func (m *machine) drawStart(t *rapid.T) (berth.Start, *modelSession) {
	s := startOf(m.prefix+rapid.SampledFrom([]string{"-few", "-many"}).Draw(t, "tenant"), rapid.SampledFrom(ids("s", 12)).Draw(t, "id"))
	s.Region = m.prefix + rapid.SampledFrom([]string{"-eu", "-us"}).Draw(t, "region")
	s.Spill = rapid.Bool().Draw(t, "spill")
	s.OnWorkerLoss = rapid.SampledFrom([]berth.OnWorkerLoss{berth.LossRejoin, berth.LossReplace, berth.LossEnd}).Draw(t, "on loss")
	s.Slots = rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "slots")
	s.Strategy = rapid.SampledFrom([]berth.Strategy{"", "", berth.StrategyPack}).Draw(t, "strategy")
	s.IdempotencyKey = rapid.SampledFrom([]string{"", "", "", "k1", "k2"}).Draw(t, "key")
	s.BodyHash[0] = byte(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "body"))
	return s, &modelSession{region: s.Region, spill: s.Spill, onLoss: s.OnWorkerLoss, slots: s.Slots, pack: s.Strategy == berth.StrategyPack}
}

// Start starts a session, or asks for a live one.
func (m *machine) Start(t *rapid.T) {
	s, fresh := m.drawStart(t)
	id, name := modelID{s.TenantID, s.ID}, modelID{s.TenantID, s.IdempotencyKey}
	key, made := m.keys[name]
	if made && !m.unmet[key.session] {
		id = key.id
	}
	known := m.sessions[id]
	placed, err := m.store().Place(t.Context(), s)
	switch {
	case made && key.body != s.BodyHash[0]:
		m.want(t, err, berth.CodeIdempotency)
		return
	case made && !m.unmet[key.session] && (known == nil || known.key != key.session):
		m.want(t, err, berth.CodeSessionEnded)
		return
	case known == nil && m.liveOf(id.tenant) >= m.quotas[id.tenant]:
		m.want(t, err, berth.CodeConcurrentSessions)
		return
	case known == nil:
		m.started(t, fresh, placed, err)
		known = fresh
	case known.state == berth.SessionAwaitingRejoin:
		m.started(t, known, placed, err)
	case err != nil || placed.Created || placed.Session.Generation != known.generation || placed.Session.WorkerID != known.worker:
		t.Fatalf("a live id: got %+v, %v; want %+v", placed, err, known)
	}
	if err != nil {
		return
	}
	if placed.Created != (m.sessions[id] == nil) {
		t.Fatalf("created %v, known %+v", placed.Created, m.sessions[id])
	}
	m.sessions[id] = known
	if s.IdempotencyKey != "" {
		m.keys[name] = modelKey{body: s.BodyHash[0], id: id, session: known.key}
	}
}

// started checks a placement that was to be made, or its refusal for want of room.
func (m *machine) started(t *rapid.T, s *modelSession, placed berth.Placement, err error) {
	choices := m.choices(s)
	if len(choices) == 0 {
		m.want(t, err, berth.CodeAtCapacity)
		return
	}
	m.placed(t, placed, err, choices)
	m.assign(s, placed.Session)
}

// Crash ends a process in the middle of a start. Whether it was made is found out by asking.
func (m *machine) Crash(t *rapid.T) {
	s, fresh := m.drawStart(t)
	s.IdempotencyKey = ""
	id := modelID{s.TenantID, s.ID}
	if m.sessions[id] != nil || m.liveOf(id.tenant) >= m.quotas[id.tenant] || m.choices(fresh) == nil {
		t.Skip("only what would be made")
	}
	n := rapid.IntRange(0, len(m.stores)-1).Draw(t, "process")
	answered := make(chan error)
	go func() {
		_, err := m.stores[n].Place(m.rig.Context(), s)
		answered <- err
	}()
	m.rig.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = $1",
		processName(n))
	err := <-answered
	m.stores[n].Close()
	m.stores[n] = openStore(m.rig.T, m.rig.db, postgres.Config{Name: processName(n)})
	if mayFail(err) != nil {
		t.Fatal(err)
	}
	row, _, findErr := m.store().Session(t.Context(), id.tenant, id.id)
	if findErr != nil || row.State == berth.SessionEnded {
		if err == nil {
			t.Fatalf("what was placed is not there: %+v, %v", row, findErr)
		}
		return
	}
	m.placed(t, berth.Placement{Session: row}, nil, m.choices(fresh))
	m.assign(fresh, row)
	m.sessions[id] = fresh
}

func processName(n int) string { return fmt.Sprintf("berth machine %d", n) }

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
	choices := m.choices(s)
	answer, err := m.store().Rejoin(t.Context(), berth.Rejoin{Key: s.key, PeerID: "p1", Generation: s.generation, Lost: true})
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
	if _, err := m.store().ConnectPeer(t.Context(), connectOf(row, "p1", "c")); err != nil {
		t.Fatal(err)
	}
	s.state = berth.SessionActive
}

// End ends a session, for its tenant or by its owner's word.
func (m *machine) End(t *rapid.T) {
	id, s := m.drawSession(t)
	if rapid.Bool().Draw(t, "by tenant") {
		if _, err := m.store().EndSession(t.Context(), id.tenant, id.id); err != nil {
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
	if err := m.store().EndSessions(t.Context(), []berth.End{end}); err != nil {
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
	if n, err := m.store().EndOverdue(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("ended %d, %v", n, err)
	}
	m.unmet[s.key] = s.state == berth.SessionAssigned
	delete(m.sessions, id)
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
		got, err := m.store().Worker(t.Context(), id)
		free := 0
		if m.fits(id, 1) {
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

// clear ends what a run left: its deadlines would come in the middle of another.
func (m *machine) clear() {
	for id := range m.sessions {
		if _, err := m.store().EndSession(m.rig.Context(), id.tenant, id.id); err != nil {
			m.rig.Errorf("end %v: %v", id, err)
		}
	}
}

func TestProof_StoresBehaveAsTheModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stores := make([]*postgres.Store, 3)
	for n := range stores {
		stores[n] = openStore(t, r.db, postgres.Config{Name: processName(n)})
	}
	number := 0
	ends := time.Now().Add(proofTime(t, time.Hour, 0.1)) // the short form ends by the number of its checks
	t.Logf("seed: repeat with -rapid.seed=%v", flag.Lookup("rapid.seed").Value)
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(ends) {
			return
		}
		number++
		m := newMachine(r, stores, number)
		defer m.clear()
		// Half of what is done is placing; the rest would empty the tables.
		actions := rapid.StateMachineActions(m)
		actions["Start1"], actions["Start2"], actions["Start3"] = m.Start, m.Start, m.Start
		actions["Connect1"] = m.Connect
		rt.Repeat(actions)
	})
	t.Logf("as the model: %d runs of three processes", number)
}
