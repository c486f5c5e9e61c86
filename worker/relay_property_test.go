package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// Whatever the two paths and the scheduler do, in any order:
//
//   - a session that waits for a rejoin is dropped only by "over", by silence from everybody for three seconds past the
//     lease and waking, or when nobody spoke for the database for the hold limit;
//   - it does not run on when everybody is silent;
//   - a session that is placed elsewhere at once never runs past its lease;
//   - while any replica speaks for the database, strangers are let in, whatever becomes of the worker's own link;
//   - what the worker gave up by itself is not ended as forgotten.
func TestPropertySecondPathKeepsTheRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(inBubble{t}, func(rt *rapid.T) {
			b := newBench(t)
			b.registry.now = b.keeper.config.Now
			b.addReplicas(rapid.IntRange(1, 4).Draw(rt, "replicas"))
			b.start()
			defer func() {
				b.cancel()
				<-b.done
			}()
			now := time.Now()
			p := &paths{faults: faults{b: b, quietSince: now}, heard: voiceVerdict, heardSince: now}
			b.hub.watch = p.watch
			p.place()
			rt.Repeat(map[string]func(*rapid.T){
				"link refuses": p.away, "link hangs": p.hang, "link is cut": p.cut, "link is back": p.back, "pause": p.stop,
				"lose presence": p.losePresence, "lost": p.giveUp, "one replica": p.one, "all replicas": p.all,
				"wait": p.wait, "wait shortly": p.waitShortly, "": p.check,
			})
		})
	})
}

// paths does harm to both paths. What is true of them changes at the beginning of an action alone, and check runs after
// each, so it knows since when it has been true.
type paths struct {
	faults

	heard      voice     // the most that anybody says now
	heardSince time.Time // by fake time
	mute       time.Time // since when nobody speaks for the database; zero: somebody does
	over       bool      // "over" was said, or is going to be
	dropped    drop      // of session 1; zero: it runs
	judged     bool
}

// drop is when a session was dropped, by fake time and by the keeper's clock.
type drop struct{ at, clock, leaseEnd time.Time }

// voice is what a worker gets to hear.
type voice string

const (
	voiceVerdict voice = "a verdict"
	voiceAway    voice = "the database is away"
	voiceNone    voice = "nothing"
)

func (p *paths) cut(*rapid.T) {
	p.b.cut()
	p.quiet = true
}

// stop is a pause that is long enough to be noticed.
func (p *paths) stop(t *rapid.T) {
	p.b.paused.Add(int64(rapid.IntRange(3, 300).Draw(t, "seconds")) * int64(time.Second))
	p.b.sleep(awakeTick)
	p.pausedAt = p.b.keeper.config.Now()
}

func (p *paths) giveUp(t *rapid.T) {
	p.lost(t)
	p.over = true
}

func (p *paths) one(t *rapid.T) {
	replica := rapid.SampledFrom(p.b.replicas).Draw(t, "replica")
	replica.become(p.state(t))
}

func (p *paths) all(t *rapid.T) { all(p.b.replicas, p.state(t)) }

func (p *paths) state(t *rapid.T) replicaState {
	return rapid.SampledFrom([]replicaState{replicaWell, replicaDown, replicaHang, replicaAway}).Draw(t, "state")
}

func (p *paths) waitShortly(t *rapid.T) {
	p.b.sleep(time.Duration(rapid.IntRange(1, 5_000).Draw(t, "milliseconds")) * time.Millisecond)
}

func (p *paths) voice() voice {
	says := voiceNone
	if !p.quiet {
		says = voiceVerdict
	}
	for _, replica := range p.b.replicas {
		switch {
		case replica.state == replicaWell:
			says = voiceVerdict
		case replica.state == replicaAway && says == voiceNone:
			says = voiceAway
		}
	}
	return says
}

func (p *paths) listen() {
	now := time.Now()
	if says := p.voice(); says != p.heard {
		p.heard, p.heardSince = says, now
	}
	switch {
	case p.heard == voiceVerdict && now.Sub(p.heardSince) >= answerSpell:
		p.mute = time.Time{}
	case p.heard != voiceVerdict && p.mute.IsZero():
		p.mute = now
	}
}

// watch notes when session 1 was dropped, and what its lease was then.
func (p *paths) watch(key berth.SessionKey) {
	if key == 1 {
		p.dropped = drop{at: time.Now(), clock: p.b.keeper.config.Now(), leaseEnd: p.b.registry.leaseEnd()}
	}
}

func (p *paths) check(t *rapid.T) {
	synctest.Wait()
	p.listen()
	p.judgeDrop(t)
	config, heard := p.b.keeper.config, time.Since(p.heardSince)
	awake := config.Now().Sub(p.pausedAt)
	const round = 3 * time.Second // and a bit
	if p.heard == voiceNone && heard > config.Lease+config.SilenceLimit+round && awake > config.SilenceLimit+round && p.dropped.at.IsZero() {
		t.Fatalf("runs on though nobody answered for %v", heard)
	}
	leased := config.Now().Before(p.b.registry.leaseEnd().Add(awakeTick))
	if _, fenced := p.b.hub.fate(2); !fenced && !leased {
		t.Fatal("a session that is placed elsewhere at once runs past the lease")
	}
	if p.heard == voiceVerdict && !p.over && heard > 3*round && awake > 3*round && p.b.hub.admits() != signaling.AdmitAll {
		t.Fatalf("strangers are refused though the database was heard for %v", heard)
	}
	if reason := p.b.registry.endedAs(2); reason != "" {
		t.Fatalf("a fenced session was ended: %s", reason)
	}
}

// judgeDrop looks at a drop that happened since the last look.
func (p *paths) judgeDrop(t *rapid.T) {
	d, config := p.dropped, p.b.keeper.config
	if d.at.IsZero() || p.over || p.judged {
		return
	}
	p.judged = true
	if !p.mute.IsZero() && d.at.Sub(p.mute) >= config.HoldLimit-config.Lease {
		return
	}
	const rounds = 4 * time.Second // somebody who answers is asked within it
	if heard := d.at.Sub(p.heardSince); p.heard != voiceNone && heard > rounds {
		t.Fatalf("dropped though %s was heard for %v", p.heard, heard)
	}
	if past := d.clock.Sub(d.leaseEnd); past < config.SilenceLimit-awakeTick {
		t.Fatalf("dropped %v after the end of the lease", past)
	}
	if awake := d.clock.Sub(p.pausedAt); awake < config.SilenceLimit-2*awakeTick {
		t.Fatalf("dropped %v after waking", awake)
	}
}
