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
		b.wantFate(1, signaling.Fate{Planned: true})
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
		b.wantFate(1, signaling.Fate{Planned: true}) // past the deadline it is closed regardless
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
			b.wantFate(1, signaling.Fate{Planned: true})
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

// Moves never run ahead of the plan, never pile up, never outrun what others can take while there is time, and are
// complete at the deadline.
func TestPropertyMovesAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		ahead := time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "ahead"))
		left := rapid.IntRange(0, 100_000).Draw(t, "sessions")
		peers := rapid.IntRange(1, 2).Draw(t, "connections each")
		total := left
		d := planDrain(now, now.Add(ahead))
		longest := max(moveWindow, time.Duration(total*peers)*time.Second/moveRate)
		step := max(ahead/97, time.Millisecond)
		for at := time.Duration(0); at < ahead; at += step {
			n := d.due(now.Add(at), left, left*peers)
			if n < 0 || n > left {
				t.Fatalf("%d due of %d", n, left)
			}
			left -= n
			if d.window > longest || d.window > ahead/2 {
				t.Fatalf("window %v of %v for %d connections", d.window, ahead, total*peers)
			}
			if early := ahead - at - d.window; early > 0 && left != total {
				t.Fatalf("moved %v before the window", early)
			}
			if most := mostMoves(step, longest, ahead, total); float64(n) > most {
				t.Fatalf("%d of %d moved within %v of %v, want %.0f at most", n, total, step, d.window, most)
			}
		}
		if n := d.due(now.Add(ahead), left, left*peers); n != left {
			t.Fatalf("%d of %d due at the deadline", n, left)
		}
	})
}

// mostMoves is how many sessions may move within one step: moveRate of connections, or as many as half the time demands.
func mostMoves(step, longest, ahead time.Duration, total int) float64 {
	return float64(step)/float64(max(1, min(longest, ahead/2)))*float64(total) + 1
}

// An override that moves the deadline must not move at once all that would be due by the old plan.
func TestPropertyAnEarlierDeadlineIsAnotherPlan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		left := rapid.IntRange(1, 5000).Draw(t, "sessions")
		d := planDrain(now, now.Add(10*time.Minute))
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(595*time.Second)).Draw(t, "override after")))
		left -= d.due(now, left, left)
		ahead := time.Duration(rapid.Int64Range(int64(2*time.Second), int64(time.Hour)).Draw(t, "ahead"))
		if ahead-d.deadline.Sub(now) > -2*shiftedDeadline && ahead-d.deadline.Sub(now) < 2*shiftedDeadline {
			return
		}
		d.postpone(now, now.Add(ahead))
		if n := d.due(now, left, left); n != 0 {
			t.Fatalf("%d of %d moved at once, %v before the new deadline", n, left, ahead)
		}
		if n := d.due(now.Add(ahead), left, left); n != left {
			t.Fatalf("%d of %d due at the new deadline", n, left)
		}
	})
}

// What renewals say about the deadline differs by what they take; moves go on by the plan.
func TestShiftedDeadlineChangesNoPlan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	d := planDrain(now, now.Add(20*time.Second))
	now = now.Add(15 * time.Second)
	if n := d.due(now, 100, 100); n != 50 {
		t.Fatalf("%d of 100 due in the middle of the window, want 50", n)
	}
	d.postpone(now, d.deadline.Add(20*time.Millisecond))
	if n := d.due(now, 50, 50); n != 0 {
		t.Fatalf("%d moved again for a deadline that is the same", n)
	}
	if n := d.due(now.Add(2500*time.Millisecond), 50, 50); n < 24 || n > 25 {
		t.Fatalf("%d of 50 due in the middle of what is left, want 24 or 25", n)
	}
}
