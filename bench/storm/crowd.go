package storm

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	// dialers is how many clients arrive at a time.
	dialers = 64
	// hangers is how many are closed at a time.
	hangers = 256
	// settle is how long clients may take to hear that they listen.
	settle = 30 * time.Second
	// placings is how often a publisher may be placed anew to come to a worker that nobody leaves.
	placings = 200
	// unanswered messages of one publisher; beyond it one is left out, which is counted.
	unanswered = 32
)

// crowd is the clients of a case. It must be closed.
type crowd struct {
	backend   *backend
	transport *http.Transport
	name      string // what calls and topics begin with
	topics    int
	manner    manner
	progress  func(done, total int, what string)
	epoch     time.Time

	listeners  []*listener
	publishers []*listener
	pingers    []*pinger
	asking     sync.WaitGroup // of pingers
	filled     float64        // clients per second that came when nothing else was going on

	quiet      context.CancelFunc // ends publishing
	publishing sync.WaitGroup
	mu         sync.Mutex // guards the rest
	failed     int        // messages that were not published for certain
	newest     map[string]int64
}

func newCrowd(b *backend, name string, topics int, m manner, progress func(done, total int, what string)) *crowd {
	return &crowd{
		backend: b, name: name, topics: topics, manner: m, progress: progress, epoch: time.Now(), quiet: func() {},
		newest: map[string]int64{},
		// Each client of the world has connections of its own, which it opens anew.
		transport: &http.Transport{DisableKeepAlives: true},
	}
}

func (c *crowd) topic(i int) string { return fmt.Sprintf("%s:%d", c.name, i%c.topics) }

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
	return c.connect(ctx, p, topic)
}

func (c *crowd) connect(ctx context.Context, p *sdk.Placement, topic string) (*listener, error) {
	l, err := listen(ctx, c.transport, c.epoch, p, topic, c.manner)
	if err != nil {
		return nil, fmt.Errorf("connect peer %s of %s: %w", p.Peer.ID, p.ID, err)
	}
	return l, nil
}

// publish has one more client for each topic, on workers that nobody leaves, publish steadily from now on, and some more
// ping.
func (c *crowd) publish(ctx context.Context, every time.Duration, safe func(worker string) bool) error {
	if err := c.ping(ctx, safe); err != nil {
		return err
	}
	for i := range c.topics {
		l, err := c.publisher(ctx, i, safe)
		if err != nil {
			return err
		}
		c.publishers = append(c.publishers, l)
	}
	if !eventually(ctx, settle, func() bool {
		for _, l := range c.publishers {
			if !l.settled() {
				return false
			}
		}
		return true
	}) {
		return errors.New("not all publishers listen to their topic")
	}
	ctx, c.quiet = context.WithCancel(ctx)
	for i, l := range c.publishers {
		// One after the other over the period: together they would be a storm of their own.
		first := every * time.Duration(i) / time.Duration(c.topics)
		c.publishing.Go(func() {
			if rest(ctx, first) == nil {
				c.speak(ctx, l, c.topic(i), every)
			}
		})
	}
	return nil
}

// publisher seats and connects the one who publishes to a topic.
func (c *crowd) publisher(ctx context.Context, i int, safe func(worker string) bool) (*listener, error) {
	p, err := c.safeSeat(ctx, fmt.Sprintf("%s-publisher-%d", c.name, i), safe)
	if err != nil {
		return nil, err
	}
	return c.connect(ctx, p, c.topic(i))
}

// safeSeat places a client where it is not moved. Seats that nobody takes are forgotten by the database.
func (c *crowd) safeSeat(ctx context.Context, call string, safe func(worker string) bool) (*sdk.Placement, error) {
	for try := range placings {
		p, err := c.backend.seat(ctx, fmt.Sprintf("%s-%d", call, try), "p0")
		if err != nil {
			return nil, err
		}
		if safe(p.Owner.WorkerID) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("of %d placements none was on a worker that is not about to be left", placings)
}

// speak publishes the time, in nanoseconds since the crowd began, when it is time: one that waits for its turn is late.
func (c *crowd) speak(ctx context.Context, l *listener, topic string, every time.Duration) {
	var sending errgroup.Group
	sending.SetLimit(unanswered)
	defer func() { _ = sending.Wait() }() // they return nothing
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		at := time.Since(c.epoch)
		sent := sending.TryGo(func() error {
			published, err := l.conn.Publish(ctx, topic, at.Nanoseconds())
			switch {
			case err == nil:
				c.published(topic, published.Offset)
			case ctx.Err() == nil:
				c.fail()
			}
			return nil
		})
		if !sent {
			c.fail()
		}
	}
}

func (c *crowd) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed++
}

func (c *crowd) published(topic string, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest[topic] = max(c.newest[topic], offset)
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

// hush ends publishing, after which nobody changes newest, and waits until nobody misses anything that was published.
func (c *crowd) hush(ctx context.Context) {
	c.quiet()
	c.publishing.Wait()
	behind := func(i int) bool { return c.listeners[i].heard.last() < c.newest[c.topic(i/2)] }
	i := 0
	_ = eventually(ctx, settle, func() bool { // who is behind after that missed something, which is counted
		for i < len(c.listeners) && !behind(i) {
			i++
		}
		return i == len(c.listeners)
	})
	for i, l := range c.listeners {
		l.heard.expect(c.newest[c.topic(i/2)])
	}
}

// close says goodbye for all clients, and waits until nothing of them runs.
func (c *crowd) close() {
	c.quiet()
	c.publishing.Wait()
	var group errgroup.Group
	group.SetLimit(hangers)
	for _, l := range append(append([]*listener{}, c.listeners...), c.publishers...) {
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
	for _, p := range c.pingers {
		p.conn.Close()
	}
	c.asking.Wait()
	c.transport.CloseIdleConnections()
}
