package signaling

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// inFakeTime runs f with a hub in a synctest bubble.
func inFakeTime(t *testing.T, config Config, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, config)
		defer r.run()()
		f(r)
	})
}

// pass lets fake time pass and waits until everything has come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// connect joins a peer over a wire in memory and waits until everything has come to rest.
func (r *rig) connect(h berth.Held, session, peer string, w *fakeWire) *fakeWire {
	r.hub.start(context.Background(), w, handshake{session: session, token: token(h, session, peer), protocol: true})
	synctest.Wait()
	return w
}

func TestIdleSessionEndsAfterItsTimeout(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		w := r.connect(held(1), "s-1", "a", newFakeWire())
		pass(2 * r.directory.idle)
		close(w.in)
		pass(r.directory.idle - time.Second)
		back := r.connect(held(1), "s-1", "a", newFakeWire())
		close(back.in)
		synctest.Wait()
		pass(r.directory.idle - time.Millisecond)
		if got := r.directory.endedAs(held(1)); got != "" {
			t.Fatalf("ended as %q before its time", got)
		}
		pass(2 * time.Millisecond)
		if got := r.directory.endedAs(held(1)); got != berth.EndedIdle {
			t.Fatalf("ended as %q, want idle", got)
		}
	})
}

func TestExpiredSessionClosesItsPeers(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: 24 * time.Hour}, func(r *rig) {
		r.directory.ttl = 90 * time.Second
		w := r.connect(held(1), "s-1", "a", newFakeWire())
		pass(89 * time.Second)
		if w.code() != 0 {
			t.Fatalf("closed with %d before its time", w.code())
		}
		pass(2 * time.Second)
		if w.code() != CloseEnded || r.directory.endedAs(held(1)) != berth.EndedExpired {
			t.Fatalf("closed with %d, ended as %q", w.code(), r.directory.endedAs(held(1)))
		}
	})
}

func TestPauseUsesUpNobodysDeadline(t *testing.T) {
	t.Parallel()
	var woke atomic.Pointer[time.Time]
	woke.Store(&time.Time{})
	config := Config{PingInterval: 10 * time.Second, Awake: func() time.Time { return *woke.Load() }}
	inFakeTime(t, config, func(r *rig) {
		silent := r.connect(held(1), "s-1", "a", newFakeWire())
		idle := r.connect(held(2), "s-2", "a", newFakeWire())
		close(idle.in)
		synctest.Wait()
		pass(14 * time.Second) // just before the first deadline
		now := time.Now()
		woke.Store(&now) // as after a long pause
		pass(14 * time.Second)
		if silent.code() != 0 {
			t.Fatalf("closed with %d: the pause was counted", silent.code())
		}
		pass(2 * time.Second)
		if silent.code() != CloseTryLater {
			t.Fatalf("silent client was closed with %d", silent.code())
		}
		pass(r.directory.idle - 17*time.Second)
		if got := r.directory.endedAs(held(2)); got != "" {
			t.Fatalf("ended as %q: the pause was counted", got)
		}
		pass(2 * time.Second)
		if got := r.directory.endedAs(held(2)); got != berth.EndedIdle {
			t.Fatalf("ended as %q", got)
		}
	})
}

// The database may have taken a join that it did not answer. The client comes back, so until then no renewal says
// that the worker does not know the session.
func TestSessionOfAnUnansweredJoinCountsAsHeldForAWhile(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		r.directory.set(func(d *fakeDirectory) { d.hang = true })
		w := r.connect(held(1), "s-1", "a", newFakeWire())
		pass(3 * time.Second)
		if w.code() != CloseTryLater || len(r.hub.Held()) != 1 {
			t.Fatalf("closed with %d, holds %v", w.code(), r.hub.Held())
		}
		r.directory.set(func(d *fakeDirectory) { d.hang = false })
		r.connect(held(1), "s-1", "a", newFakeWire())
		if got := r.hub.Held(); len(got) != 1 {
			t.Fatal(got)
		}
		r.hub.DropAll(Fate{})
		pass(r.hub.config.DoubtHold)
		if got := r.hub.Held(); len(got) != 0 {
			t.Fatal(got)
		}
	})
}

func TestClientThatAnswersPingsStays(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: 10 * time.Second}, func(r *rig) {
		r.directory.ttl = 24 * time.Hour
		w := r.connect(held(1), "s-1", "a", newFakeWire())
		for range 100 {
			pass(10 * time.Second)
			w.in <- []byte(`{"type":"pong"}`)
			synctest.Wait()
		}
		if w.code() != 0 {
			t.Fatalf("closed with %d", w.code())
		}
		pings := 0
		for _, f := range w.frames() {
			if strings.Contains(f, `"ping"`) {
				pings++
			}
		}
		if pings < 99 || w.pinged() != pings {
			t.Fatalf("%d application and %d protocol pings in 1,000 s", pings, w.pinged())
		}
		pass(24 * time.Second)
		if w.code() != 0 {
			t.Fatalf("closed with %d before PongTimeout", w.code())
		}
		pass(2 * time.Second)
		if w.code() != CloseTryLater {
			t.Fatalf("closed with %d, want 1013", w.code())
		}
	})
}

// A queue is bounded in bytes and in age; once over, only the close frame follows the frame that is being written.
func TestSlowConnectionIsClosedByBytesAndByAge(t *testing.T) {
	t.Parallel()
	config := Config{PingInterval: time.Hour, QueueBytes: 1000, QueueAge: 5 * time.Second, CloseGrace: 3 * time.Second}
	for _, tc := range []struct {
		name   string
		frames int
		after  time.Duration
		resume bool
	}{
		{"bytes", 20, 0, true},
		{"age", 2, 6 * time.Second, true},
		{"never reads again", 20, 4 * time.Second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, config, func(r *rig) {
				w := newFakeWire()
				w.stall = make(chan struct{})
				r.connect(held(1), "s-1", "a", w)
				r.hub.mu.Lock()
				s := r.hub.sessions[1].peers["a"].sender
				r.hub.mu.Unlock()
				for range tc.frames {
					s.send([]byte(strings.Repeat("x", 100)))
				}
				pass(tc.after)
				if code, closing := s.closed(); !closing || code != CloseTryLater {
					t.Fatalf("not closing as too slow: %d %v", code, closing)
				}
				if tc.resume {
					close(w.stall)
				}
				synctest.Wait()
				if got := w.frames(); tc.resume && (len(got) != 1 || w.code() != CloseTryLater) {
					t.Fatalf("%d frames before close %d; want the one that was stuck, then 1013", len(got), w.code())
				}
				if !tc.resume && w.Write(nil) == nil {
					t.Fatal("not cut after its grace")
				}
				if n := r.gauge("berth_signaling_connections"); n != 0 {
					t.Fatalf("%v connections counted", n)
				}
			})
		})
	}
}

func TestJoinsOfOneSessionWaitForEachOtherWithinTheJoinTimeout(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{ConnectTimeout: 4 * time.Second, JoinTimeout: 10 * time.Second}, func(r *rig) {
		r.directory.hang = true
		wires := make([]*fakeWire, 5)
		begin := time.Now()
		for i := range wires {
			wires[i] = r.connect(held(1), "s-1", "a", newFakeWire())
		}
		other := r.connect(held(2), "s-2", "a", newFakeWire())
		pass(4*time.Second + time.Millisecond)
		if other.code() != CloseTryLater {
			t.Fatal("a session waited for another")
		}
		r.hub.tasks.Wait()
		if took := time.Since(begin); took > 11*time.Second {
			t.Fatalf("joins hung for %v", took)
		}
		for i, w := range wires {
			if w.code() != CloseTryLater {
				t.Fatalf("join %d closed with %d", i, w.code())
			}
		}
	})
}
