package signaling

import (
	"testing"
	"testing/synctest"
	"time"
)

// holds checks the number of sessions that a renewal would name.
func (r *rig) holds(want int, when string) {
	r.t.Helper()
	if got := r.hub.Held(); len(got) != want {
		r.t.Fatalf("%s: holds %v, want %d", when, got, want)
	}
}

// A worker that gave sessions up by itself told their clients to come back, so no renewal says that it forgot them:
// not while nobody is let in, and not for their idle timeout after that.
func TestSessionsWhoseClientsMayReturnCountAsHeld(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		fenced := r.connect(held(1), "s-1", "a", newFakeWire())
		stopped := r.connect(held(2), "s-2", "a", newFakeWire())
		r.hub.Admit(AdmitHeld)
		r.hub.Drop(held(1), Fate{Return: true})
		r.connect(held(1), "s-1", "b", newFakeWire())
		r.hub.Admit(AdmitNone)
		r.hub.DropAll(Fate{Restart: true, Return: true})
		synctest.Wait()
		if fenced.code() != CloseMoved || stopped.code() != CloseRestart {
			t.Fatalf("closed with %d and %d", fenced.code(), stopped.code())
		}
		if sessions, _ := r.media.open(); sessions != 0 {
			t.Fatalf("%d media sessions still run", sessions)
		}
		pass(10 * r.directory.idle)
		r.holds(2, "while nobody is let in")
		r.hub.Admit(AdmitAll)
		pass(r.directory.idle - time.Second)
		r.holds(2, "before the idle timeout")
		back := r.connect(held(2), "s-2", "a", newFakeWire())
		pass(2 * time.Second)
		r.holds(1, "after the idle timeout of the one nobody came back to")
		if back.code() != 0 {
			t.Fatalf("closed with %d", back.code())
		}
		r.hub.DropAll(Fate{})
		r.holds(0, "once all moved")
	})
}

func TestWordOfTheDatabaseEndsAnAbsence(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		r.connect(held(1), "s-1", "a", newFakeWire())
		r.hub.Drop(held(1), Fate{Return: true})
		r.holds(1, "after the worker gave it up")
		r.hub.Drop(held(1), Fate{})
		r.holds(0, "after the database said that it moved")
	})
}

// What the database decided may reach the hub when it must not let anybody in any more. The client tries again, and
// nothing that it left behind runs.
func TestJoinThatComesBackInDoubtIsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		to   Admission
	}{{"in doubt", AdmitHeld}, {"over", AdmitNone}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
				r.directory.during = func() { r.hub.Admit(tc.to) }
				w := r.connect(held(1), "s-1", "a", newFakeWire())
				if w.code() != CloseTryLater || r.directory.connections() != 0 {
					t.Fatalf("closed with %d, %d connections", w.code(), r.directory.connections())
				}
				r.holds(1, "while the client may try again")
				if sessions, _ := r.media.open(); sessions != 0 {
					t.Fatalf("%d media sessions run", sessions)
				}
			})
		})
	}
}

func TestTimersOfASessionStopWithTheirCause(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		r.connect(held(1), "s-1", "a", newFakeWire())
		r.hub.mu.Lock()
		s := r.hub.sessions[1]
		r.hub.mu.Unlock()
		if s.idle.Stop() {
			t.Fatal("the idle timer ran while a peer was connected")
		}
		r.hub.Drop(held(1), Fate{})
		if s.idle.Stop() || s.expiry.Stop() {
			t.Fatal("a timer of a dropped session ran on")
		}
	})
}
