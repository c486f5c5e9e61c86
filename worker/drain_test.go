package worker

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

func TestDrainMovesSessionsOneByOneBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		for key := berth.SessionKey(1); key <= 10; key++ {
			b.place(key, berth.LossRejoin, 1)
		}
		b.place(11, berth.LossEnd, 1)
		begin := time.Now()
		b.registry.set(func() {
			b.registry.state, b.registry.deadline = berth.WorkerDraining, begin.Add(100*time.Second)
		})
		b.sleep(69 * time.Second)
		b.wantAdmission(signaling.AdmitOwned)
		if n := b.registry.counts().moved; n != 0 {
			t.Fatalf("%d sessions moved before the window", n)
		}
		b.sleep(16 * time.Second) // half of the window
		if n := b.registry.counts().moved; n < 4 || n > 7 {
			t.Fatalf("%d of 11 sessions moved at half time", n)
		}
		b.sleep(15500 * time.Millisecond)
		if n := b.registry.counts().moved; n != 11 {
			t.Fatalf("%d of 11 sessions moved at the deadline", n)
		}
		for i, keys := range b.registry.counts().moves {
			if len(keys) > 2 {
				t.Fatalf("move %d took %d sessions at once", i, len(keys))
			}
		}
		b.wantFate(1, signaling.Fate{})
		b.wantFate(11, signaling.Fate{Ended: true, Reason: berth.EndedDrained})
	})
}

func TestDrainCanBeUndone(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.registry.set(func() {
			b.registry.state, b.registry.deadline = berth.WorkerDraining, time.Now().Add(20*time.Second)
		})
		b.sleep(5 * time.Second)
		b.wantAdmission(signaling.AdmitOwned)
		b.registry.set(func() { b.registry.state, b.registry.deadline = berth.WorkerReady, time.Time{} })
		b.sleep(3 * time.Second)
		b.wantAdmission(signaling.AdmitAll)
		b.sleep(time.Minute)
		b.wantServed(1)
	})
}

// Only the database knows of sessions that were placed here and that nobody connected to.
func TestDeadlineGivesUpAllThatIsPlacedHereOnce(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.registry.set(func() {
			b.registry.state, b.registry.deadline = berth.WorkerDraining, time.Now().Add(20*time.Second)
		})
		asked := func() (n int) {
			b.registry.set(func() { n = len(b.registry.displace) })
			return n
		}
		b.sleep(20*time.Second - awakeTick)
		if n := asked(); n != 0 {
			t.Errorf("the database was asked %d times before the deadline", n)
		}
		b.sleep(3 * awakeTick)
		if n := asked(); n != 1 {
			t.Errorf("the database was asked %d times at the deadline, want once", n)
		}
		b.sleep(time.Minute)
		if n := asked(); n != 1 {
			t.Errorf("the database was asked %d times, want once", n)
		}
	})
}

func TestMovesAreRepeatedUntilTheDatabaseTakesThem(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.registry.set(func() {
			b.registry.state, b.registry.deadline = berth.WorkerDraining, time.Now().Add(20*time.Second)
		})
		b.sleep(5 * time.Second)
		b.registry.set(func() { b.registry.away = true })
		b.sleep(14 * time.Second)
		b.wantServed(1)
		b.sleep(4 * time.Second)
		b.wantFate(1, signaling.Fate{}) // past the deadline it is closed regardless
	})
}

// A move of unknown outcome says nothing once the drain is undone: the session stays until a renewal speaks.
func TestFailedMoveOfAnUndoneDrainDropsNothing(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		b.registry.set(func() {
			b.registry.noMoves = true
			b.registry.state, b.registry.deadline = berth.WorkerDraining, time.Now().Add(20*time.Second)
		})
		b.sleep(20*time.Second + awakeTick) // the move is under way
		b.registry.set(func() { b.registry.state, b.registry.deadline = berth.WorkerReady, time.Time{} })
		b.keeper.nudge()
		b.sleep(time.Second)
		b.wantAdmission(signaling.AdmitAll)
		b.sleep(time.Minute)
		b.wantServed(1)
	})
}

func TestStopReturnsAsSoonAsNobodyIsConnected(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		held := b.place(1, berth.LossRejoin, 1)
		b.place(2, berth.LossRejoin, 0) // nobody is connected: no reason to wait
		close(b.keeper.stops)
		b.sleep(10 * time.Second)
		b.wantAdmission(signaling.AdmitOwned)
		if b.registry.counts().state != berth.WorkerDraining {
			t.Fatal("the database does not know of the drain")
		}
		b.hub.Drop(held, signaling.Fate{Ended: true})
		b.sleep(time.Second)
		<-b.done
		if b.err != nil || b.last == nil {
			t.Fatalf("ended with %v", b.err)
		}
	})
}

func TestStopMovesTheRestAtItsDeadline(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		inFakeTime(t, func(b *bench) {
			b.place(1, berth.LossRejoin, 1)
			begin := time.Now()
			b.registry.set(func() { b.registry.away = away })
			close(b.keeper.stops)
			<-b.done
			took := time.Since(begin)
			if b.err != nil || took < 59*time.Second || took > 63*time.Second {
				t.Fatalf("away %v: stopped after %v with %v", away, took, b.err)
			}
			b.wantFate(1, signaling.Fate{})
			if !away && b.registry.counts().drains != 1 {
				t.Fatalf("%d drain calls", b.registry.counts().drains)
			}
		})
	}
}

func TestStopKeepsTheEarlierDeadlineOfADrain(t *testing.T) {
	t.Parallel()
	inFakeTime(t, func(b *bench) {
		b.place(1, berth.LossRejoin, 1)
		begin := time.Now()
		b.registry.set(func() {
			b.registry.state, b.registry.deadline = berth.WorkerDraining, begin.Add(20*time.Second)
		})
		b.sleep(3 * time.Second)
		close(b.keeper.stops)
		<-b.done
		if took := time.Since(begin); took > 21*time.Second {
			t.Fatalf("stopped after %v", took)
		}
	})
}

// Moves never run ahead of the plan, never pile up, and are complete at the deadline.
func TestPropertyMovesAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		ahead := time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "ahead"))
		left := rapid.IntRange(0, 5000).Draw(t, "sessions")
		total := left
		d := planDrain(now, now.Add(ahead))
		if d.window > maxMoveWindow || d.window > ahead/2 {
			t.Fatalf("window %v of %v", d.window, ahead)
		}
		for at := time.Duration(0); at < ahead; at += max(ahead/97, time.Millisecond) {
			n := d.due(now.Add(at), left)
			if n < 0 || n > left {
				t.Fatalf("%d due of %d", n, left)
			}
			left -= n
			if early := ahead - at - d.window; early > 0 && left != total {
				t.Fatalf("moved %v before the window", early)
			}
		}
		if n := d.due(now.Add(ahead), left); n != left {
			t.Fatalf("%d of %d due at the deadline", n, left)
		}
	})
}
