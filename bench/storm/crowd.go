package storm

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/bench/lab"
)

const (
	// dialers is how many clients arrive at a time.
	dialers = 64
	// hangers is how many are closed at a time.
	hangers = 256
	// settle is how long clients may take to hear that they listen.
	settle = 30 * time.Second
)

// crowd is the clients of a case. It must be closed.
type crowd struct {
	cfg       Config
	backend   *backend
	transport *http.Transport
	name      string // what calls and topics begin with
	manner    manner
	progress  func(done, total int, what string)

	listeners []*listener
	filled    float64 // clients per second that came when nothing else was going on
	witness   *lab.Aside
}

func newCrowd(b *backend, cfg Config, name string, m manner) *crowd {
	return &crowd{
		cfg: cfg, backend: b, name: name, manner: m, transport: ownConnections(),
		progress: func(done, total int, what string) { cfg.Progress(done, total, name+": "+what) },
	}
}

// ownConnections is a transport for clients that have connections of their own in the world, which they open anew.
func ownConnections() *http.Transport { return &http.Transport{DisableKeepAlives: true} }

func (c *crowd) topic(i int) string { return topic(c.name, i%c.cfg.Topics) }

// topic names those of a crowd.
func topic(crowd string, i int) string { return fmt.Sprintf("%s:%d", crowd, i) }

// fill has n clients come, two to a call, some at a time.
func (c *crowd) fill(ctx context.Context, n int) error {
	group, coming := errgroup.WithContext(ctx)
	group.SetLimit(dialers)
	c.listeners = make([]*listener, n)
	var came progress
	came.tell = func(done int) { c.progress(done, n, "clients come") }
	began := time.Now()
	for i := 0; i < n; i += 2 { // the peers of a call one after the other: they write to one row
		group.Go(func() error {
			for j := i; j < min(i+2, n); j++ {
				l, err := c.arrive(coming, fmt.Sprintf("%s-%d", c.name, i/2), fmt.Sprintf("p%d", j%2), c.topic(i/2))
				if err != nil {
					return err
				}
				c.listeners[j] = l
				came.more()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	c.filled = float64(n) / time.Since(began).Seconds()
	listening := eventually(ctx, settle, func() bool { return c.count((*listener).settled) == n })
	if !listening {
		return errors.New("fill: not all clients listen to their topic")
	}
	return nil
}

// progress counts what several goroutines do.
type progress struct {
	tell func(done int)

	mu   sync.Mutex // guards done, and has told in order
	done int
}

func (p *progress) more() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.tell(p.done)
}

// arrive places a peer and connects it.
func (c *crowd) arrive(ctx context.Context, call, peer, topic string) (*listener, error) {
	p, err := c.backend.seat(ctx, call, peer)
	if err != nil {
		return nil, err
	}
	return listen(ctx, c.transport, time.Time{}, p, topic, c.manner)
}

func (c *crowd) count(is func(*listener) bool) (n int) {
	for _, l := range c.listeners {
		if is(l) {
			n++
		}
	}
	return n
}

// at lists the clients that are on a worker.
func (c *crowd) at(worker string) (some []*listener) {
	for _, l := range c.listeners {
		if l.worker() == worker {
			some = append(some, l)
		}
	}
	return some
}

// workers lists those that have clients, the one with most first.
func (c *crowd) workers() []string {
	clients := map[string]int{}
	for _, l := range c.listeners {
		clients[l.worker()]++
	}
	return slices.SortedFunc(maps.Keys(clients), func(a, b string) int {
		return cmp.Or(cmp.Compare(clients[b], clients[a]), cmp.Compare(a, b))
	})
}

// runName tells the calls and topics of one run from those of another on the same database.
func runName(what string) string { return what + "-" + strings.ToLower(rand.Text()[:8]) }

// watch starts the witness, which publishes from now on. Nobody else may be told to leave the workers where it is.
func (c *crowd) watch(ctx context.Context, where haven) error {
	task := witnessTask{
		URLs: c.backend.urls, Path: c.backend.path, Region: c.backend.region, Header: c.backend.header,
		Name: c.name, Topics: c.cfg.Topics, Every: c.cfg.Every, Haven: where,
	}
	command := exec.Command(c.cfg.Binary, "bench", "aside", WitnessAside) //nolint:noctx // StartAside ends it
	var err error
	if c.witness, err = lab.StartAside(ctx, command, task); err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	return nil
}

// hush ends publishing, waits until nobody misses anything that was published, and returns what the witness saw.
func (c *crowd) hush(ctx context.Context) (witnessed, error) {
	var w witnessed
	if err := c.witness.Finish(&w); err != nil {
		return w, fmt.Errorf("witness: %w", err)
	}
	catchUp(ctx, c.listeners, func(i int) int64 { return w.Newest[c.topic(i/2)] })
	return w, nil
}

// catchUp returns once each of the listeners heard what was published last. Who did not in time missed something.
func catchUp(ctx context.Context, some []*listener, newest func(i int) int64) {
	i := 0
	_ = eventually(ctx, settle, func() bool { // who is behind after that is counted
		for i < len(some) && some[i].heard.last() >= newest(i) {
			i++
		}
		return i == len(some)
	})
	for i, l := range some {
		l.heard.expect(newest(i))
	}
}

// close says goodbye for all clients, and waits until nothing of them runs.
func (c *crowd) close() error {
	var err error
	if c.witness != nil {
		err = c.witness.Close()
	}
	hangUp(c.listeners)
	c.transport.CloseIdleConnections()
	return err
}

// hangUp says goodbye for clients, and waits until nothing of them runs.
func hangUp(some []*listener) {
	var group errgroup.Group
	group.SetLimit(hangers)
	for _, l := range some {
		if l == nil || l.conn == nil {
			continue
		}
		group.Go(func() error {
			err := l.conn.Close()
			<-l.conn.Done()
			return err
		})
	}
	_ = group.Wait() // Close returns nil
}
