package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

const (
	judges = 4
	// budget is the share of each judge: together they can use their worker up, and no more.
	budget = 3
)

// judge asks for slots that only judges can take, and for no more than its share of them. So what it asks for is free,
// whatever the others do and however the slots are locked: a refusal is false. A judge that cannot know what became of
// a start counts it as placed.
type judge struct {
	chaos  *chaos
	store  *postgres.Store
	random *rand.Rand
	name   string
	held   map[string]int // slots of each session
	number int
}

func (c *chaos) judge(i int) *judge {
	return &judge{chaos: c, store: c.stores[i%3], random: c.random(0, 50+i), name: fmt.Sprintf("j%d", i), held: map[string]int{}}
}

func (j *judge) used() (n int) {
	for _, slots := range j.held {
		n += slots
	}
	return n
}

func (j *judge) step(ctx context.Context) error {
	if left := budget - j.used(); left > 0 && j.random.IntN(3) > 0 {
		return j.place(ctx, 1+j.random.IntN(left))
	}
	for id := range j.held {
		return j.end(ctx, id)
	}
	return nil
}

func (j *judge) place(ctx context.Context, slots int) error {
	j.number++
	s := startOf("judge", fmt.Sprintf("%s-%d", j.name, j.number))
	s.Region, s.Spill, s.Slots = "calm", j.random.IntN(2) == 0, slots
	s.Strategy = []berth.Strategy{"", berth.StrategyPack, berth.StrategySpread}[j.random.IntN(3)]
	if j.random.IntN(3) == 0 {
		s.Selector = map[string]string{"calm": "yes"}
	}
	if j.random.IntN(3) == 0 {
		s.Wait = time.Second
	}
	began := time.Now()
	_, err := j.store.Place(ctx, s)
	j.chaos.count.calls.Add(1)
	j.chaos.count.judged.Add(1)
	switch {
	case err == nil:
		j.chaos.count.placed.Add(1)
		j.held[s.ID] = slots
		return nil
	case berth.RefusalCode(err) == berth.CodeAtCapacity:
		j.chaos.count.falseRefusals.Add(1)
		return fmt.Errorf("refused %d slots of %d after %v, of which %d were its own", slots, budget, time.Since(began), j.used())
	case errors.Is(err, berth.ErrUnavailable):
		j.chaos.count.unknown.Add(1)
		j.held[s.ID] = slots
		return nil
	default:
		return err
	}
}

// end gives slots back, unless it stays unknown whether it did.
func (j *judge) end(ctx context.Context, id string) error {
	_, err := j.store.EndSession(ctx, "judge", id)
	switch {
	case errors.Is(err, berth.ErrUnavailable):
		return nil
	case err == nil, berth.RefusalCode(err) == berth.CodeNotFound:
		delete(j.held, id)
		return nil
	default:
		return err
	}
}

// Refusals are true, beside everything else at once: those who ask for what is free get it.
func TestProof_RefusalsAreTrue(t *testing.T) {
	t.Parallel()
	c := newChaos(t)
	c.regional = true
	c.tenant("judge")
	calm := registrationOf("calm0", 0, judges*budget)
	calm.Region, calm.Labels = "calm", map[string]string{"calm": "yes"}
	c.registered(calm)
	var panel [judges]*judge // they keep what they hold from round to round
	for i := range panel {
		panel[i] = c.judge(i)
	}
	c.run("refusals", proofTime(t, 4*time.Second, 0.25), chaosProcesses, func(round, i int) stepper {
		if i < judges {
			return panel[i]
		}
		return c.stress(round, i)
	})
}
