package worker

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// fakeReplica is an API replica with a link of its own to the registry's database.
type fakeReplica struct {
	registry *fakeRegistry

	mu    sync.Mutex
	state replicaState
	asked []time.Time
}

type replicaState string

const (
	replicaWell replicaState = "well"
	replicaDown replicaState = "down" // refuses connections
	replicaHang replicaState = "hang"
	replicaAway replicaState = "away" // does not reach the database either
)

func (p *fakeReplica) become(state replicaState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
}

func (p *fakeReplica) times() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *fakeReplica) renew(
	ctx context.Context, secret string, r berth.Renewal, held []berth.Held,
) (berth.RenewalAnswer, []berth.Dropped, error) {
	p.mu.Lock()
	state := p.state
	p.asked = append(p.asked, time.Now())
	p.mu.Unlock()
	switch state {
	case replicaDown:
		return berth.RenewalAnswer{}, nil, errors.New("connection refused")
	case replicaHang:
		<-ctx.Done()
		return berth.RenewalAnswer{}, nil, ctx.Err()
	case replicaAway:
		return berth.RenewalAnswer{}, nil, errNoVerdict
	default:
	}
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	if hash, err := auth.HashRenewalSecret(secret); err != nil || r.Instance == p.registry.instance && !bytes.Equal(hash, p.registry.hash) {
		return berth.RenewalAnswer{}, nil, errNoVerdict
	}
	p.registry.relays++
	answer := p.registry.answer(r)
	if held == nil || answer.Matched || answer.Verdict != berth.RenewalYours {
		return answer, nil, nil
	}
	return answer, p.registry.compare(held), nil
}

// withReplicas is inFakeTime with a second path through n replicas, whose worker registered with the replicas well.
func withReplicas(t *testing.T, n int, f func(b *bench, replicas []*fakeReplica)) {
	t.Helper()
	inFakeTimeAfter(t, func(b *bench) { b.addReplicas(n) }, func(b *bench) { f(b, b.replicas) })
}

func (b *bench) addReplicas(n int) {
	for range n {
		p := &fakeReplica{registry: b.registry, state: replicaWell}
		b.replicas = append(b.replicas, p)
		b.keeper.replicas = append(b.keeper.replicas, p)
	}
}

// cut takes the worker's own link to the database away, as packets that vanish do, and its presence with it.
func (b *bench) cut() {
	b.registry.set(func() {
		b.registry.hang = true
		for instance := range b.registry.present {
			delete(b.registry.present, instance) // the server gives the lock up, and nobody is told
		}
	})
}

func (b *bench) mend() { b.registry.set(func() { b.registry.hang = false }) }

func all(replicas []*fakeReplica, state replicaState) {
	for _, p := range replicas {
		p.become(state)
	}
}

func TestReplicasAreNotAskedWhileTheDatabaseAnswers(t *testing.T) {
	t.Parallel()
	withReplicas(t, 2, func(b *bench, replicas []*fakeReplica) {
		b.place(1, berth.LossRejoin, 1)
		b.registry.set(func() { b.registry.lag = 1900 * time.Millisecond })
		b.sleep(5 * time.Minute)
		for _, p := range replicas {
			if asked := p.times(); len(asked) > 0 {
				t.Fatalf("asked %d times", len(asked))
			}
		}
	})
}

func TestWorkerThatIsCutOffFromTheDatabaseAloneGoesOn(t *testing.T) {
	t.Parallel()
	for _, state := range []replicaState{replicaWell, replicaDown, replicaHang, replicaAway} {
		t.Run("and the other replica is "+string(state), func(t *testing.T) {
			t.Parallel()
			withReplicas(t, 2, func(b *bench, replicas []*fakeReplica) {
				b.place(1, berth.LossRejoin, 1)
				b.place(2, berth.LossReplace, 1)
				instance := b.keeper.status.load().instance
				b.sleep(10 * time.Second)
				replicas[0].become(state)
				b.cut()
				for range 600 {
					b.sleep(time.Second)
					b.wantServed(1)
					b.wantServed(2)
					b.wantAdmission(signaling.AdmitAll)
				}
				if end := b.registry.leaseEnd(); time.Until(end) < 0 {
					t.Fatalf("the lease ended %v ago", time.Since(end))
				}
				b.mend()
				b.sleep(10 * time.Second)
				b.wantServed(1)
				b.wantServed(2)
				if now := b.keeper.status.load().instance; now != instance {
					t.Errorf("instance %d became %d", instance, now)
				}
				if got := b.registry.counts().present; got != 1 {
					t.Errorf("%d presences after the link is back", got)
				}
				before := len(replicas[1].times())
				b.sleep(time.Minute)
				if after := len(replicas[1].times()); after != before {
					t.Errorf("replicas are asked though the database answers: %d times", after-before)
				}
			})
		})
	}
}

func TestDatabaseAwayByAReplicaIsDoubtUpToTheHoldLimit(t *testing.T) {
	t.Parallel()
	withReplicas(t, 2, func(b *bench, replicas []*fakeReplica) {
		b.place(1, berth.LossRejoin, 1)
		b.place(2, berth.LossReplace, 1)
		replicas[0].become(replicaDown)
		replicas[1].become(replicaAway)
		b.cut()
		b.sleep(8 * time.Second)
		b.wantAdmission(signaling.AdmitHeld)
		b.wantFate(2, signaling.Fate{Return: true})
		b.sleep(108 * time.Second)
		b.wantServed(1)
		b.wantAdmission(signaling.AdmitHeld)
		b.sleep(6 * time.Second)
		b.wantFate(1, signaling.Fate{Restart: true, Return: true})
	})
}

func TestSilenceFromEverybodyStopsEverythingSoonAfterTheLease(t *testing.T) {
	t.Parallel()
	for _, state := range []replicaState{replicaDown, replicaHang} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			withReplicas(t, 3, func(b *bench, replicas []*fakeReplica) {
				b.place(1, berth.LossRejoin, 1)
				b.sleep(10 * time.Second)
				all(replicas, state)
				b.cut()
				end := b.registry.leaseEnd()
				b.sleep(time.Until(end) + 2500*time.Millisecond)
				b.wantServed(1)
				b.wantAdmission(signaling.AdmitHeld)
				b.sleep(time.Second)
				b.wantFate(1, signaling.Fate{Restart: true, Return: true})
				b.wantAdmission(signaling.AdmitNone)
				if reason := b.registry.endedAs(1); reason != "" {
					t.Errorf("the session was ended: %s", reason)
				}
				all(replicas, replicaWell)
				b.sleep(5 * time.Second)
				b.wantAdmission(signaling.AdmitAll) // "yours": its clients may come back
			})
		})
	}
}

func TestSilenceAfterAPauseCountsFromWaking(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state  replicaState
		before time.Duration // of silence before the pause
	}{
		"refused":                      {replicaDown, 0},
		"hung":                         {replicaHang, 0},
		"hung, a round was under way":  {replicaHang, 3 * time.Second},
		"refused, it was alone before": {replicaDown, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withReplicas(t, 3, func(b *bench, replicas []*fakeReplica) {
				b.place(1, berth.LossRejoin, 1)
				b.sleep(10 * time.Second)
				all(replicas, test.state)
				b.cut()
				b.sleep(test.before)
				b.paused.Add(int64(10 * time.Minute))
				woke := time.Now()
				b.sleep(2500 * time.Millisecond)
				b.wantServed(1)
				for _, p := range replicas {
					asked := p.times()
					i := slices.IndexFunc(asked, func(at time.Time) bool { return at.After(woke) })
					if i < 0 || asked[i].Sub(woke) > 2*time.Second {
						t.Errorf("woke at %v, a replica was asked at %v", woke, asked)
					}
				}
				b.sleep(1250 * time.Millisecond)
				b.wantFate(1, signaling.Fate{Restart: true, Return: true})
			})
		})
	}
}

func TestSilenceBeforeAPauseSaysNothingOfNow(t *testing.T) {
	t.Parallel()
	withReplicas(t, 2, func(b *bench, replicas []*fakeReplica) {
		b.place(1, berth.LossRejoin, 1)
		b.sleep(10 * time.Second)
		all(replicas, replicaDown)
		b.cut()
		b.sleep(5 * time.Second)
		replicas[1].become(replicaWell)
		b.paused.Add(int64(10 * time.Minute))
		b.sleep(time.Minute)
		b.wantServed(1)
		b.wantAdmission(signaling.AdmitAll)
	})
}

func TestPausedWorkerLearnsItsFateFromAReplica(t *testing.T) {
	t.Parallel()
	withReplicas(t, 2, func(b *bench, replicas []*fakeReplica) {
		b.place(1, berth.LossRejoin, 1)
		b.sleep(10 * time.Second)
		replicas[0].become(replicaHang)
		b.cut()
		b.paused.Add(int64(10 * time.Minute))
		b.sleep(time.Minute)
		b.wantServed(1)
		b.wantAdmission(signaling.AdmitAll)

		old := b.keeper.status.load().instance
		b.registry.set(func() { b.registry.state = berth.WorkerLost })
		b.sleep(5 * time.Second)
		b.wantFate(1, signaling.Fate{}) // 4410: rejoin now
		b.wantAdmission(signaling.AdmitNone)
		b.sleep(time.Minute)
		b.mend()
		b.sleep(10 * time.Second)
		b.wantAdmission(signaling.AdmitAll)
		if now := b.keeper.status.load().instance; now <= old {
			t.Errorf("instance %d after %d", now, old)
		}
		b.cut() // the new instance's secret is another, and good
		b.sleep(time.Minute)
		b.wantAdmission(signaling.AdmitAll)
	})
}

func TestReplacedIsSaidByReplicasToo(t *testing.T) {
	t.Parallel()
	withReplicas(t, 1, func(b *bench, _ []*fakeReplica) {
		b.place(1, berth.LossRejoin, 1)
		b.cut()
		b.registry.set(func() { b.registry.instance += 10 })
		b.sleep(5 * time.Second)
		<-b.done
		if !errors.Is(b.err, ErrReplaced) {
			t.Fatalf("stopped with %v", b.err)
		}
		b.wantFate(1, signaling.Fate{})
	})
}

func TestOrdersComeWithRelayedRenewals(t *testing.T) {
	t.Parallel()
	withReplicas(t, 1, func(b *bench, _ []*fakeReplica) {
		for key := berth.SessionKey(1); key <= 3; key++ {
			b.place(key, berth.LossRejoin, 1)
		}
		b.cut()
		b.registry.set(func() {
			delete(b.registry.sessions, 1)
			delete(b.registry.sessions, 2)
			b.registry.ended[2] = berth.EndedDeleted
			b.registry.state, b.registry.deadline = berth.WorkerDraining, b.registry.now().Add(time.Hour)
		})
		b.sleep(5 * time.Second)
		b.wantFate(1, signaling.Fate{})
		b.wantFate(2, signaling.Fate{Ended: true, Reason: berth.EndedDeleted})
		b.wantServed(3)
		b.wantAdmission(signaling.AdmitOwned)
	})
}

func TestUnknownSecretIsAnAnswerWithoutAVerdict(t *testing.T) {
	t.Parallel()
	withReplicas(t, 1, func(b *bench, _ []*fakeReplica) {
		b.place(1, berth.LossRejoin, 1)
		b.cut()
		b.registry.set(func() { b.registry.hash = nil })
		b.sleep(time.Minute)
		b.wantServed(1)
		b.wantAdmission(signaling.AdmitHeld)
	})
}
