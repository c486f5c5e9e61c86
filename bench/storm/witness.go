package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/bench/lab"
	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	// WitnessAside is the name of the process of clients whom nothing should happen to, see [ServeWitness].
	WitnessAside = "witness"
	// hearers listen to each topic and do nothing else.
	hearers = 4
	// placings is how often a client may be placed anew to come to a worker that nobody leaves.
	placings = 200
	// unanswered messages of one publisher; beyond it one is left out, which is counted.
	unanswered = 32
)

// haven is where nobody is told to leave, or dies.
type haven struct {
	Only string `json:"only,omitempty"` // worker id; empty: any but Not
	Not  string `json:"not,omitempty"`
}

func (h haven) has(worker string) bool { return worker != h.Not && (h.Only == "" || worker == h.Only) }

// witnessTask says where a witness finds the topics of a crowd.
type witnessTask struct {
	URLs   []string      `json:"urls"` // these four as of [backend]
	Path   string        `json:"path"`
	Region string        `json:"region,omitempty"`
	Header http.Header   `json:"header"`
	Name   string        `json:"name"` // of the crowd
	Topics int           `json:"topics"`
	Every  time.Duration `json:"every_ns"` // between two messages of a topic
	Haven  haven         `json:"haven"`
}

// witnessed is what a witness saw.
type witnessed struct {
	Newest     map[string]int64 `json:"newest"` // offset, by topic
	Failed     int              `json:"failed"` // messages that were not published for certain
	Count      count            `json:"count"`
	Lost       int              `json:"lost"` // connections
	RoundTrips []latency        `json:"round_trips"`
	Answers    []latency        `json:"answers"`
}

// count is how many messages came to some clients, and how many did not.
type count struct {
	Messages int `json:"messages"`
	Missed   int `json:"missed"` // offsets that never came, and those that came twice
	Partial  int `json:"partial"`
}

func (c *count) add(l *listener) {
	l.heard.mu.Lock()
	defer l.heard.mu.Unlock()
	c.Messages += l.heard.messages
	c.Missed += l.heard.missed
	c.Partial += l.heard.partial
}

// witness is clients of survivors: one to each topic publishes, others hear it, and some ask their workers for nothing. It has
// a process of its own, so that what it sees is how survivors serve, and not how a machine serves thousands of clients.
type witness struct {
	task      witnessTask
	backend   *backend
	transport *http.Transport
	epoch     time.Time
	began     time.Time // all are connected

	all     []*listener // of each topic one after the other, see topic
	pingers []*pinger
	asking  sync.WaitGroup // of pingers

	mu     sync.Mutex // guards the rest
	failed int
	newest map[string]int64
}

// ServeWitness is the process of [WitnessAside].
func ServeWitness(ctx context.Context, in io.Reader, out io.Writer) error {
	return lab.ServeAside(ctx, in, out, func(until context.Context, task witnessTask, ready func() error) (any, error) {
		if err := room(task.Topics*(1+hearers) + pingers); err != nil {
			return nil, err
		}
		defer lab.CollectRarely()()
		w := &witness{
			task: task, epoch: time.Now(), transport: ownConnections(), newest: map[string]int64{},
			backend: newBackend(task.URLs, task.Path, task.Region, task.Header),
		}
		defer w.close()
		if err := w.arrive(ctx); err != nil {
			return nil, err
		}
		if err := ready(); err != nil {
			return nil, err
		}
		w.publish(until)
		return w.report(ctx), nil
	})
}

// arrive connects everybody, some at a time.
func (w *witness) arrive(ctx context.Context) error {
	w.all, w.pingers = make([]*listener, w.task.Topics*(1+hearers)), make([]*pinger, pingers)
	group, coming := errgroup.WithContext(ctx)
	group.SetLimit(dialers)
	for i := range w.all {
		group.Go(func() (err error) {
			w.all[i], err = w.listen(coming, i)
			return err
		})
	}
	for i := range w.pingers {
		group.Go(func() error {
			p, err := w.seat(coming, fmt.Sprintf("pinger-%d", i))
			if err != nil {
				return err
			}
			w.pingers[i], err = ping(ctx, p, &w.asking)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if !eventually(ctx, settle, func() bool {
		return !slices.ContainsFunc(w.all, func(l *listener) bool { return !l.settled() })
	}) {
		return errors.New("not all of the witness listen to their topic")
	}
	w.began = time.Now()
	return nil
}

// topic is that of a listener. The first of each topic publishes to it.
func (w *witness) topic(i int) string { return topic(w.task.Name, i/(1+hearers)) }

func (w *witness) listen(ctx context.Context, i int) (*listener, error) {
	p, err := w.seat(ctx, fmt.Sprintf("hearer-%d", i))
	if err != nil {
		return nil, err
	}
	return listen(ctx, w.transport, w.epoch, p, w.topic(i), manner{})
}

// seat places a client where nothing happens to it. Seats that nobody takes are forgotten by the database.
func (w *witness) seat(ctx context.Context, call string) (*sdk.Placement, error) {
	for try := range placings {
		p, err := w.backend.seat(ctx, fmt.Sprintf("%s-%s-%d", w.task.Name, call, try), "p0")
		if err != nil {
			return nil, err
		}
		if w.task.Haven.has(p.Owner.WorkerID) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("of %d placements none was on a worker that is not about to be left", placings)
}

// publish has the first client of each topic publish steadily until the context ends. They take turns over the period: together they would be
// a storm of their own.
func (w *witness) publish(ctx context.Context) {
	var publishing sync.WaitGroup
	for i := 0; i < len(w.all); i += 1 + hearers {
		first := w.task.Every * time.Duration(i) / time.Duration(len(w.all))
		publishing.Go(func() {
			if rest(ctx, first) == nil {
				w.speak(ctx, w.all[i], w.topic(i))
			}
		})
	}
	publishing.Wait()
}

// speak publishes the time, in nanoseconds since the epoch, when it is time: one that waits for its turn is late.
func (w *witness) speak(ctx context.Context, l *listener, topic string) {
	var sending errgroup.Group
	sending.SetLimit(unanswered)
	defer func() { _ = sending.Wait() }() // they return nothing
	ticker := time.NewTicker(w.task.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		at := time.Since(w.epoch)
		sent := sending.TryGo(func() error {
			published, err := l.conn.Publish(ctx, topic, at.Nanoseconds())
			switch {
			case err == nil:
				w.published(topic, published.Offset)
			case ctx.Err() == nil:
				w.fail()
			}
			return nil
		})
		if !sent {
			w.fail()
		}
	}
}

func (w *witness) fail() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed++
}

func (w *witness) published(topic string, offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest[topic] = max(w.newest[topic], offset)
}

// report waits until everybody heard everything. Nobody publishes any more.
func (w *witness) report(ctx context.Context) witnessed {
	catchUp(ctx, w.all, func(i int) int64 { return w.newest[w.topic(i)] })
	r := witnessed{Newest: w.newest, Failed: w.failed}
	for _, l := range w.all {
		r.Count.add(l)
		r.RoundTrips = append(r.RoundTrips, l.heard.latencies...)
		if !follow(l.trace.since(w.began)).lostAt.IsZero() {
			r.Lost++
		}
	}
	for _, p := range w.pingers {
		r.Answers = append(r.Answers, p.heard()...)
		if p.err() != nil {
			r.Lost++
		}
	}
	return r
}

func (w *witness) close() {
	hangUp(w.all)
	for _, p := range w.pingers {
		if p != nil {
			p.conn.Close()
		}
	}
	w.asking.Wait()
	w.transport.CloseIdleConnections()
	w.backend.close()
}
