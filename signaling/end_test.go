package signaling

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// What a client sends after the hub decided to close is read, so that the close frame arrives, and changes nothing.
func TestFramesAreIgnoredWhileClosing(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour, QueueAge: time.Hour}, func(r *rig) {
		w := newFakeWire()
		w.stall = make(chan struct{})
		r.connect(held(1), "s-1", "a", w)
		r.hub.Drop(held(1), Fate{})
		w.in <- []byte(`{"type":"offer","sdp":"v=0"}`)
		w.in <- []byte(`no JSON`)
		synctest.Wait()
		if len(w.in) != 0 {
			t.Fatal("the hub stopped reading")
		}
		if _, peers := r.media.open(); peers != 0 {
			t.Fatal("an offer was taken while closing")
		}
		close(w.stall)
		synctest.Wait()
		if w.code() != CloseMoved {
			t.Fatalf("closed with %d", w.code())
		}
	})
}

func TestPanicEndsOneConnectionAlone(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		a := r.connect(held(1), "s-1", "a", newFakeWire())
		b := r.connect(held(1), "s-1", "b", newFakeWire())
		b.in <- []byte(`{"type":"offer","sdp":"panic"}`)
		synctest.Wait()
		if a.code() != 0 || b.code() != CloseTryLater {
			t.Fatalf("closed with %d and %d", a.code(), b.code())
		}
		if _, peers := r.media.open(); peers != 0 || r.directory.connections() != 1 {
			t.Fatalf("%d media peers, %d connections", peers, r.directory.connections())
		}
		r.connect(held(1), "s-1", "b", newFakeWire()).in <- []byte(`{"type":"offer","sdp":"v=0"}`)
		synctest.Wait()
		if _, peers := r.media.open(); peers != 1 || r.gauge("berth_signaling_connections") != 2 {
			t.Fatalf("%d media peers after the peer came back", peers)
		}
	})
}

func TestPanicInAJoinLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour}, func(r *rig) {
		r.directory.during = func() { panic("a bug") }
		if w := r.connect(held(1), "s-1", "a", newFakeWire()); w.code() != CloseTryLater {
			t.Fatalf("closed with %d", w.code())
		}
		r.holds(0, "after the panic")
		r.directory.set(func(d *fakeDirectory) { d.during = nil })
		if w := r.connect(held(1), "s-1", "a", newFakeWire()); w.code() != 0 {
			t.Fatalf("the next join was closed with %d", w.code())
		}
	})
}

// The last word: everything that waits is told, and a database that is away costs one attempt.
func TestSettleTellsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{PingInterval: time.Hour}) // its settler does not run
		defer r.hub.Close(t.Context(), time.Second)
		r.connect(held(1), "s-1", "a", newFakeWire()).in <- []byte(`{"type":"bye"}`)
		close(r.connect(held(2), "s-2", "a", newFakeWire()).in)
		close(r.connect(held(2), "s-2", "b", newFakeWire()).in)
		synctest.Wait()
		r.directory.err = berth.ErrUnavailable
		r.hub.Settle(t.Context())
		if r.directory.ends != 1 || r.directory.gone != 0 {
			t.Fatalf("%d ends and %d disconnects were tried", r.directory.ends, r.directory.gone)
		}
		r.directory.err = nil
		r.hub.Settle(t.Context())
		if got := r.directory.endedAs(held(1)); got != berth.EndedLeft || r.directory.connections() != 0 {
			t.Fatalf("ended as %q, %d connections", got, r.directory.connections())
		}
	})
}

func TestCloseGivesUpJoinsThatAreUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{ConnectTimeout: time.Hour, JoinTimeout: time.Hour, PingInterval: time.Hour})
		r.directory.hang = true
		first := r.connect(held(1), "s-1", "a", newFakeWire())
		second := r.connect(held(1), "s-1", "b", newFakeWire()) // waits for the first
		begin := time.Now()
		r.hub.Close(context.Background(), time.Second)
		if took := time.Since(begin); took > time.Second {
			t.Fatalf("closed after %v", took)
		}
		if first.code() != CloseRestart || second.code() != CloseRestart {
			t.Fatalf("closed with %d and %d", first.code(), second.code())
		}
	})
}
