package fanout

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/berthdev/berth/bench/load"
	"github.com/berthdev/berth/bench/socket"
)

const (
	// openers is how many members join at a time.
	openers = 32
	// quiet is how long it is looked at what connections cost without messages.
	quiet = 5 * time.Second
	// drainLimit bounds the wait for messages that are under way at the end of the window.
	drainLimit = 5 * time.Second
	drainPoll  = 20 * time.Millisecond
)

// audience is the members of a scene.
type audience struct {
	shape   shape
	scene   *scene
	window  *window
	ears    []*ear
	crowd   *socket.Crowd
	holders []map[int]bool // those that have members of a topic, by topic
}

// gather connects all members, and has them subscribe. The crowd must be closed. After an error there is none.
func gather(ctx context.Context, s shape, at *scene) (*audience, error) {
	a := &audience{shape: s, scene: at, window: &window{}, holders: make([]map[int]bool, s.topics)}
	a.window.never()
	for range s.members {
		a.ears = append(a.ears, &ear{window: a.window, answered: make(chan struct{}), answers: at.answers})
	}
	var mu sync.Mutex // guards holders
	var err error
	a.crowd, err = socket.Open(ctx, s.members, openers, func(ctx context.Context, i int) (*socket.Conn, error) {
		c, holder, err := at.join(ctx, i)
		mu.Lock()
		defer mu.Unlock()
		topic := s.topicOf(i)
		if a.holders[topic] == nil {
			a.holders[topic] = map[int]bool{}
		}
		a.holders[topic][holder] = true
		return c, err
	}, func(i int, message []byte) { a.ears[i].hear(message) })
	if err != nil {
		return nil, err
	}
	err = socket.Each(ctx, s.members, openers, func(ctx context.Context, i int) error {
		if err := at.subscribe(a.crowd.Conns[i], s.topic(s.topicOf(i))); err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		return a.ears[i].awaitAnswer(ctx.Done())
	})
	if err != nil {
		a.crowd.Close()
		return nil, err
	}
	return a, nil
}

// heard is how many messages of the window came so far, to all members.
func (a *audience) heard() (n int64) {
	for _, e := range a.ears {
		n += e.heard.Load()
	}
	return n
}

// drain waits until all that was sent has come, or for drainLimit.
func (a *audience) drain(ctx context.Context, expected int64) error {
	deadline := time.Now().Add(drainLimit)
	for a.heard() < expected && time.Now().Before(deadline) {
		if err := rest(ctx, drainPoll); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) measure(ctx context.Context, s shape, system string) (m Measurement, err error) {
	at, err := r.raise(ctx, system)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, at.close(ctx)) }()
	a, err := gather(ctx, s, at)
	if err != nil {
		return m, err
	}
	defer a.crowd.Close()
	o, err := r.observe(ctx, a)
	if err != nil {
		return m, err
	}
	if err := a.crowd.Whole(); err != nil {
		r.cfg.Logger.WarnContext(ctx, "connections lost", "load", s.name, "system", system, "err", err)
	}
	o.lost = a.crowd.Lost()
	a.crowd.Close() // the ears are nobody's now
	return newMeasurement(s, system, len(at.holders), a, o), nil
}

// observation is what a window saw.
type observation struct {
	quiet      [2]reading // without messages
	from, to   reading
	counts     []int64 // messages by topic
	publishing time.Duration
	answers    []time.Duration // from a request to publish until its answer
	lost       int             // connections
}

// observe looks at the scene without messages, then with.
func (r *rig) observe(ctx context.Context, a *audience) (o observation, err error) {
	hearing, err := a.scene.hearing(ctx)
	if err != nil {
		return o, err
	}
	for i := range o.quiet {
		if o.quiet[i], err = a.scene.read(ctx, hearing); err != nil {
			return o, err
		}
		if i == 0 {
			if err := rest(ctx, quiet); err != nil {
				return o, err
			}
		}
	}
	p := publish(ctx, a.shape, a.window, func(ctx context.Context, topic int, at time.Time) error {
		return a.scene.publish(ctx, a.shape.topic(topic), at)
	})
	o, err = r.look(ctx, a, o, hearing)
	if err = errors.Join(err, p.close()); err != nil {
		return o, err
	}
	o.answers = p.took
	expected := int64(0)
	for topic := range p.counts {
		n := p.counts[topic].Load()
		o.counts = append(o.counts, n)
		expected += n * int64(a.shape.members/a.shape.topics)
	}
	return o, a.drain(ctx, expected)
}

// look reads at both ends of the window.
func (r *rig) look(ctx context.Context, a *audience, o observation, hearing []int) (observation, error) {
	err := rest(ctx, r.cfg.Warmup)
	if err != nil {
		return o, err
	}
	if o.from, err = a.scene.read(ctx, hearing); err != nil {
		return o, err
	}
	a.window.from.Store(o.from.at.UnixNano())
	if err := rest(ctx, r.cfg.Window); err != nil {
		return o, err
	}
	end := time.Now()
	a.window.to.Store(end.UnixNano())
	o.publishing = end.Sub(o.from.at)
	o.to, err = a.scene.read(ctx, hearing)
	return o, err
}

// percentiles of what all members waited, in milliseconds.
func (a *audience) percentiles() (p50, p99, most float64) {
	var took []time.Duration
	for _, e := range a.ears {
		took = append(took, e.took...)
	}
	return percentiles(took)
}

func percentiles(took []time.Duration) (p50, p99, most float64) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return ms(load.Percentile(took, 50)), ms(load.Percentile(took, 99)), ms(load.Percentile(took, 100))
}

// orZero of what cannot be divided.
func orZero(ratio float64) float64 {
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return 0
	}
	return ratio
}
