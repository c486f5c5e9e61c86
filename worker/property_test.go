package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// inBubble hides Deadline, which rapid asks for and a synctest bubble forbids: real deadlines mean nothing there.
type inBubble struct{ rapid.TB }

// Whatever the database, the network and the scheduler do, in any order:
//
//   - a worker that was not just paused lets strangers in only while its lease is current by the database's clock;
//   - a session that is placed elsewhere at once never runs past its lease, pauses excepted while they last;
//   - a session that waits for a rejoin is dropped only by "over", or by silence for the hold limit;
//   - what the worker gave up by itself is not ended as forgotten, so that its clients may come back;
//   - exactly one presence is held once the database has answered for a while.
func TestPropertyLeaseRulesHoldUnderAnyFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(inBubble{t}, func(rt *rapid.T) {
			b := newBench(t)
			b.registry.now = b.keeper.config.Now
			b.start()
			defer func() {
				b.cancel()
				<-b.done
			}()
			f := &faults{b: b, quietSince: time.Now()}
			f.place()
			rt.Repeat(map[string]func(*rapid.T){
				"away": f.away, "hang": f.hang, "back": f.back, "pause": f.pause, "lose presence": f.losePresence,
				"lost": f.lost, "lag": f.lag, "wait": f.wait, "wait more": f.wait, "": f.check,
			})
		})
	})
}

// faults does harm to a bench and knows what must hold nevertheless.
type faults struct {
	b           *bench
	pausedAt    time.Time // by the keeper's clock, after the pause; zero: never
	quietSince  time.Time // by fake time: since when the database does not answer, or when it began to again
	quiet       bool
	quietBefore time.Time // when it last became quiet after it had answered for a while
	excused     bool      // session 1 may be gone
}

func (f *faults) place() {
	f.b.place(1, berth.LossRejoin, 1)
	f.b.place(2, berth.LossReplace, 1)
}

func (f *faults) silence(away, hang bool) {
	f.b.registry.set(func() { f.b.registry.away, f.b.registry.hang = away, hang })
	quiet, now := away || hang, time.Now()
	if quiet == f.quiet {
		return
	}
	answered := now.Sub(f.quietSince)
	f.quiet, f.quietSince = quiet, now
	switch {
	case quiet && answered < answerSpell && !f.quietBefore.IsZero():
		f.quietSince = f.quietBefore
	case quiet:
		f.quietBefore = now
	}
}

// answerSpell is how long the database must answer before it is certain that a worker heard of it.
const answerSpell = 10 * time.Second

func (f *faults) away(*rapid.T) { f.silence(true, false) }
func (f *faults) hang(*rapid.T) { f.silence(false, true) }
func (f *faults) back(*rapid.T) { f.silence(false, false) }

func (f *faults) pause(t *rapid.T) {
	f.b.paused.Add(int64(rapid.IntRange(1, 300).Draw(t, "seconds")) * int64(time.Second))
	f.b.sleep(awakeTick) // until it notices
	f.pausedAt = f.b.keeper.config.Now()
}

func (f *faults) lag(t *rapid.T) {
	lag := time.Duration(rapid.IntRange(0, 1900).Draw(t, "lag")) * time.Millisecond
	f.b.registry.set(func() { f.b.registry.lag = lag })
}

func (f *faults) losePresence(*rapid.T) {
	f.b.registry.set(func() {
		for _, p := range f.b.registry.present {
			p.drop()
		}
	})
}

// lost is the reaper's verdict: everything moves away.
func (f *faults) lost(*rapid.T) {
	f.b.registry.set(func() {
		f.b.registry.state = berth.WorkerLost
		clear(f.b.registry.sessions)
	})
	f.excused = true
}

func (f *faults) wait(t *rapid.T) {
	f.b.sleep(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "milliseconds")) * time.Millisecond)
}

func (f *faults) check(t *rapid.T) {
	synctest.Wait()
	config, now := f.b.keeper.config, f.b.keeper.config.Now()
	leased := now.Before(f.b.registry.leaseEnd().Add(awakeTick)) // the keeper looks with every tick
	awakeLong := f.pausedAt.IsZero() || now.Sub(f.pausedAt) > config.Lease
	if open := f.b.hub.admits(); awakeLong && open == signaling.AdmitAll && !leased {
		t.Fatal("strangers are let in past the lease")
	}
	if _, dropped := f.b.hub.fate(2); !dropped && !leased {
		t.Fatal("a session that is placed elsewhere at once runs past the lease")
	}
	silentLong := f.quiet && time.Since(f.quietSince) >= config.HoldLimit-config.Lease
	f.excused = f.excused || silentLong
	if fate, dropped := f.b.hub.fate(1); dropped && !f.excused {
		t.Fatalf("dropped without a word from the database: %+v", fate)
	}
	if reason := f.b.registry.endedAs(2); reason != "" {
		t.Fatalf("a fenced session was ended: %s", reason)
	}
	if answered := !f.quiet && time.Since(f.quietSince) > time.Minute; answered && f.b.registry.counts().present > 1 {
		t.Fatal("more than one presence")
	}
}
