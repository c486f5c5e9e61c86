package jobs_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/jobs"
)

// fakeWorker is one worker of a fakeStore.
type fakeWorker struct {
	present  bool
	reply    jobs.Reply // to a sweep, or a probe
	cut      bool       // it renews, whatever it replies
	expires  time.Time
	gap      time.Time // zero: none is open
	unseen   time.Duration
	cordoned bool
	lost     string // evidence
	lostAt   time.Time
	instance berth.Instance
	sessions int
}

// fakeStore is a working store in memory, by the process's clock, with hooks.
type fakeStore struct {
	mu        sync.Mutex
	elsewhere bool // another process has the lock
	number    int64
	lastLook  time.Time
	ticked    time.Time
	shift     time.Duration // of the database's clock
	fresh     int           // looks over fresh connections
	posts     int           // of sentinels that were opened
	holder    int           // the number of the one that has the lock
	frozen    int           // the number of one that gets no answer
	watched   int           // looks of sentinels
	workers   map[string]*fakeWorker
	fails     string   // the method that fails
	calls     []string // what was written, in order

	onLock     func()   // called while the lock is held, before the tick
	onFresh    func()   // called before a look over a fresh connection, with mu held
	unfinished []string // workers
	drains     []string
	overdue    int
	suspicions []berth.Suspicion
	callRows
	warmed int      // calls
	judged []string // by what
}

func newFakeStore() *fakeStore { return &fakeStore{workers: map[string]*fakeWorker{}} }

// add adds a worker that is well.
func (f *fakeStore) add(id string, sessions int) *fakeWorker {
	w := &fakeWorker{present: true, reply: jobs.ReplyGiven, expires: time.Now().Add(6 * time.Second), sessions: sessions}
	w.instance = berth.Instance(len(f.workers) + 1)
	f.workers[id] = w
	return w
}

func (f *fakeStore) record(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

// enter locks the fake and says whether the method should fail.
func (f *fakeStore) enter(method string) (leave func(), err error) {
	f.mu.Lock()
	if f.fails == method {
		err = errBroken
	}
	return f.mu.Unlock, err
}

func (f *fakeStore) WithReaperLock(ctx context.Context, act func(context.Context) error) (bool, error) {
	f.mu.Lock()
	elsewhere, onLock := f.elsewhere, f.onLock
	f.mu.Unlock()
	if elsewhere {
		return false, nil
	}
	if onLock != nil {
		onLock()
	}
	return true, act(ctx)
}

func (f *fakeStore) BeginTick(_ context.Context, blindAfter, lease time.Duration) (berth.Tick, error) {
	leave, err := f.enter("BeginTick")
	defer leave()
	f.number++
	f.ticked = time.Now()
	blind := f.lastLook.IsZero() || time.Since(f.lastLook) > blindAfter
	for _, w := range f.workers {
		if blind {
			w.gap = time.Time{}
			if full := time.Now().Add(lease); w.expires.Before(full) {
				w.expires = full
			}
		}
	}
	f.lastLook = time.Now()
	return berth.Tick{Number: f.number, Blind: blind, At: f.now()}, err
}

// now is the database's clock.
func (f *fakeStore) now() time.Time { return time.Now().Add(f.shift) }

func (f *fakeStore) Distrust(context.Context) error {
	leave, err := f.enter("Distrust")
	defer leave()
	f.lastLook = time.Time{}
	f.record("distrust")
	return err
}

func (f *fakeStore) Look(_ context.Context, look berth.Look) (berth.View, error) {
	leave, err := f.enter("Look")
	defer leave()
	if look.Tick != f.number || f.lastLook.IsZero() {
		return berth.View{}, berth.ErrStale
	}
	f.lastLook = time.Now()
	if look.Fresh {
		f.fresh++
		if f.onFresh != nil {
			f.onFresh()
		}
	}
	view := berth.View{At: f.now()}
	for id, w := range f.workers {
		if w.lost != "" {
			continue
		}
		s := berth.Sighting{
			WorkerID: id, Instance: w.instance, State: berth.WorkerReady, Present: w.present || !look.Presence, Cordoned: w.cordoned,
			Late: time.Since(w.expires), GapOpen: !w.gap.IsZero(), GapUnseen: w.unseen,
		}
		if s.GapOpen {
			s.GapAge = time.Since(w.gap)
		}
		view.Workers = append(view.Workers, s)
	}
	return view, err
}

func (f *fakeStore) WalkSessions(context.Context) ([]berth.Owned, error) {
	leave, err := f.enter("WalkSessions")
	defer leave()
	var sessions []berth.Owned
	for id, w := range f.workers {
		for range w.sessions {
			sessions = append(sessions, berth.Owned{WorkerID: id, Instance: w.instance})
		}
	}
	return sessions, err
}

func (f *fakeStore) OwnedBy(_ context.Context, id string, instance berth.Instance, limit int) ([]berth.Owned, error) {
	leave, err := f.enter("OwnedBy")
	defer leave()
	var sessions []berth.Owned
	for i := range min(limit, f.workers[id].sessions) {
		sessions = append(sessions, berth.Owned{ID: fmt.Sprintf("%s-%d", id, i), WorkerID: id, Instance: instance})
	}
	return sessions, err
}

func (f *fakeStore) OpenGap(
	_ context.Context, _ int64, id string, _ berth.Instance, evidence string, unseen time.Duration,
) error {
	leave, err := f.enter("OpenGap")
	defer leave()
	f.workers[id].gap, f.workers[id].unseen = time.Now(), unseen
	f.record("gap %s %s", id, evidence)
	return err
}

func (f *fakeStore) ClearGap(_ context.Context, _ int64, id string, _ berth.Instance) error {
	leave, err := f.enter("ClearGap")
	defer leave()
	f.workers[id].gap = time.Time{}
	f.record("clear %s", id)
	return err
}

func (f *fakeStore) CordonLate(_ context.Context, _ int64, id string, _ berth.Instance) (bool, error) {
	leave, err := f.enter("CordonLate")
	defer leave()
	f.workers[id].cordoned = true
	f.record("cordon %s", id)
	return true, err
}

func (f *fakeStore) MarkLost(_ context.Context, tick int64, id string, _ berth.Instance, evidence string) (bool, error) {
	leave, err := f.enter("MarkLost")
	defer leave()
	if tick != f.number {
		return false, err
	}
	f.workers[id].lost, f.workers[id].lostAt = evidence, time.Now()
	f.record("lost %s %s", id, evidence)
	return true, err
}

func (f *fakeStore) Unfinished(context.Context) ([]berth.Sighting, error) {
	leave, err := f.enter("Unfinished")
	defer leave()
	return sightingsOf(f.unfinished), err
}

func (f *fakeStore) OverdueDrains(_ context.Context, grace time.Duration) ([]berth.Sighting, error) {
	leave, err := f.enter("OverdueDrains")
	defer leave()
	if grace != berth.DefaultDetection().DrainGrace {
		f.record("grace %v", grace)
	}
	return sightingsOf(f.drains), err
}

func sightingsOf(ids []string) (sightings []berth.Sighting) {
	for _, id := range ids {
		sightings = append(sightings, berth.Sighting{WorkerID: id, Instance: 1})
	}
	return sightings
}

func (f *fakeStore) DisplaceLost(_ context.Context, id string, _ berth.Instance, limit int) (int, error) {
	leave, err := f.enter("DisplaceLost")
	defer leave()
	return f.displace("lost", id, limit), err
}

func (f *fakeStore) DisplaceDrained(_ context.Context, id string, _ berth.Instance, limit int) (int, error) {
	leave, err := f.enter("DisplaceDrained")
	defer leave()
	return f.displace("drained", id, limit), err
}

func (f *fakeStore) displace(why, id string, limit int) int {
	w := f.workers[id]
	n := min(limit, w.sessions)
	w.sessions -= n
	f.record("displace %s %s %d", why, id, n)
	return n
}

func (f *fakeStore) ReplaceLost(context.Context, int) (int, error) {
	leave, err := f.enter("ReplaceLost")
	defer leave()
	f.record("replace")
	return 0, err
}

func (f *fakeStore) WarmWorkers(context.Context) error {
	leave, err := f.enter("WarmWorkers")
	defer leave()
	f.warmed++
	return err
}

func (f *fakeStore) PurgeWaiters(context.Context) error {
	leave, err := f.enter("PurgeWaiters")
	defer leave()
	return err
}

func (f *fakeStore) JudgeWorkers(_ context.Context, window time.Duration, least int) ([]berth.Suspicion, error) {
	leave, err := f.enter("JudgeWorkers")
	defer leave()
	f.judged = append(f.judged, fmt.Sprint(window, " ", least))
	return f.suspicions, err
}

func (f *fakeStore) EndOverdue(_ context.Context, limit int) (int, error) {
	leave, err := f.enter("EndOverdue")
	defer leave()
	n := min(limit, f.overdue)
	f.overdue -= n
	f.record("end %d", n)
	return n, err
}

// Ask answers as the fake worker does.
func (f *fakeStore) Ask(ctx context.Context, s berth.Sighting, _ time.Time) jobs.Answer {
	f.mu.Lock()
	w := f.workers[s.WorkerID]
	f.mu.Unlock()
	if w.reply == jobs.ReplyLate {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	if w.reply != jobs.ReplyGiven {
		return jobs.Answer{Reply: w.reply}
	}
	return jobs.Answer{Reply: w.reply, Sockets: w.sessions}
}

// cannedProber answers one result for all.
type cannedProber berth.ProbeResult

func (p cannedProber) Probe(context.Context, berth.Sighting) berth.ProbeResult {
	return berth.ProbeResult(p)
}

// proberFunc asks a function.
type proberFunc func(context.Context, berth.Sighting) berth.ProbeResult

func (p proberFunc) Probe(ctx context.Context, s berth.Sighting) berth.ProbeResult { return p(ctx, s) }
