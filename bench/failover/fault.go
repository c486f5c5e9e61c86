package failover

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// leastJitter spreads faults over the periods of renewals and ticks.
const leastJitter = 2 * time.Second

// Sample is what one fault showed, in milliseconds.
type Sample struct {
	Gap      []float64 `json:"gap_ms"`     // from the fault to the first gap, by worker
	Confirm  []float64 `json:"confirm_ms"` // from there to the verdict, by worker
	Notified []float64 `json:"notified_ms"`
	// Missed is how many survivors were told of nothing for as long as the harness waited.
	Missed int `json:"missed"`
}

// fault is one fault and whom it is about.
type fault struct {
	mark      int // of the journal
	began     time.Time
	victims   []life
	survivors []*peer
}

// life is one instance of a worker.
type life struct {
	who      *member
	instance int64
}

// about says whether a line is about one of the victims, in the life that it had.
func (f *fault) about(e entry) bool {
	return slices.ContainsFunc(f.victims, func(v life) bool { return v.who.id == e.workerID && v.instance == e.instance })
}

func (f *fault) hits(m *member) bool {
	return slices.ContainsFunc(f.victims, func(v life) bool { return v.who == m })
}

// aim prepares a fault of some workers: it finds who survives it.
func (s *scene) aim(victims ...*member) *fault {
	f := &fault{}
	for _, m := range victims {
		f.victims = append(f.victims, life{m, m.instance})
	}
	for _, c := range s.calls {
		for _, p := range c.peers {
			p.forget()
			switch {
			case f.hits(p.worker):
				p.doom()
			case f.hits(c.other(p).worker):
				f.survivors = append(f.survivors, p)
			}
		}
	}
	f.mark = s.journal.mark()
	return f
}

// jitter waits for a random while.
func (s *scene) jitter(ctx context.Context) error {
	return rest(ctx, rand.N(max(leastJitter, s.tuning.tick)))
}

// strike kills workers, does what else is part of the fault at the same moment, and watches what follows until every
// survivor knows.
func (s *scene) strike(ctx context.Context, f *fault, alongside func()) Sample {
	f.began = time.Now()
	alongside()
	for _, v := range f.victims {
		v.who.kill()
	}
	eventually(ctx, s.patience(), func() bool { return s.judged(f) && f.told() })
	return s.sample(f)
}

// judged says whether every victim was declared lost.
func (s *scene) judged(f *fault) bool {
	for _, v := range f.victims {
		if _, found := s.journal.first(f.mark, lineLoss, v); !found {
			return false
		}
	}
	return true
}

// told says whether every survivor was told.
func (f *fault) told() bool {
	return !slices.ContainsFunc(f.survivors, func(p *peer) bool { return !p.has("peer-disconnected", f.began) })
}

func (s *scene) sample(f *fault) Sample {
	var out Sample
	for _, v := range f.victims {
		gap, found := s.journal.first(f.mark, lineGap, v)
		if !found {
			continue
		}
		out.Gap = append(out.Gap, milliseconds(gap.at.Sub(f.began)))
		if loss, found := s.journal.first(f.mark, lineLoss, v); found {
			out.Confirm = append(out.Confirm, milliseconds(loss.at.Sub(gap.at)))
		}
	}
	for _, p := range f.survivors {
		told := p.since("peer-disconnected", f.began)
		if len(told) == 0 {
			out.Missed++
			continue
		}
		out.Notified = append(out.Notified, milliseconds(told[len(told)-1].at.Sub(f.began)))
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// kill is one whole round: workers are killed, come back, and so do the calls. It counts the collateral.
func (s *scene) kill(ctx context.Context, victims []*member, alongside, after func() error) (Sample, error) {
	if err := s.jitter(ctx); err != nil {
		return Sample{}, err
	}
	f := s.aim(victims...)
	var failed error
	sample := s.strike(ctx, f, func() { failed = alongside() })
	if failed != nil {
		return sample, failed
	}
	s.countDrops(f)
	if err := after(); err != nil {
		return sample, err
	}
	if err := s.beginAll(ctx, victims); err != nil {
		return sample, err
	}
	if err := s.restore(ctx); err != nil {
		return sample, err
	}
	return sample, s.audit(ctx, f)
}

func nothing() error { return nil }

// victims are the next n workers in turn. Those that come back have few peers at first, since who rejoins avoids the
// worker that it lost.
func (s *scene) victims(n int) []*member {
	var out []*member
	for range n {
		out = append(out, s.workers[s.turn%len(s.workers)])
		s.turn++
	}
	return out
}

// kills kills one worker after the other.
func (s *scene) kills(ctx context.Context, n int, what string) ([]Sample, error) {
	var samples []Sample
	for range n {
		sample, err := s.kill(ctx, s.victims(1), nothing, nothing)
		if err != nil {
			return samples, err
		}
		samples = append(samples, sample)
		s.rig.step(what)
	}
	return samples, nil
}
