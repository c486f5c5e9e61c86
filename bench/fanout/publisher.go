package fanout

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// publishers send at a time. Who finds all of them busy is late, which the report shows.
	publishers = 64
	// backlog of messages that are due.
	backlog = 1 << 16
)

// publisher sends messages at a steady rate, whatever the servers do.
type publisher struct {
	send   func(ctx context.Context, topic int, at time.Time) error
	window *window

	due    chan int // topics
	sent   atomic.Int64
	counts []atomic.Int64 // by topic, within the window
	failed atomic.Pointer[error]
	work   sync.WaitGroup
	stop   context.CancelFunc

	mu   sync.Mutex      // guards took
	took []time.Duration // from request to answer, within the window
}

// publish begins to send. The publisher must be closed.
func publish(
	ctx context.Context, s shape, w *window, send func(ctx context.Context, topic int, at time.Time) error,
) *publisher {
	p := &publisher{send: send, window: w, due: make(chan int, backlog), counts: make([]atomic.Int64, s.topics)}
	ctx, p.stop = context.WithCancel(ctx)
	p.work.Go(func() { p.pace(ctx, s) })
	for range publishers {
		p.work.Go(func() { p.deliver(context.WithoutCancel(ctx)) })
	}
	return p
}

// pace says when the next message is due, until ctx ends. Topics take turns.
func (p *publisher) pace(ctx context.Context, s shape) {
	defer close(p.due)
	began := time.Now()
	for i := 0; ; i++ {
		wait := time.Until(began.Add(time.Duration(float64(i) / s.rate * float64(time.Second))))
		if rest(ctx, wait) != nil {
			return
		}
		select {
		case p.due <- i % s.topics:
		default:
			return // so far behind that all is void: there are too few messages
		}
	}
}

func (p *publisher) deliver(ctx context.Context) {
	for topic := range p.due {
		at := time.Now()
		if err := p.send(ctx, topic, at); err != nil {
			p.failed.CompareAndSwap(nil, &err)
			continue
		}
		p.sent.Add(1)
		if nano := at.UnixNano(); nano >= p.window.from.Load() && nano < p.window.to.Load() {
			p.counts[topic].Add(1)
			p.note(time.Since(at))
		}
	}
}

func (p *publisher) note(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = append(p.took, took)
}

// close ends it when all that was due is sent, and returns the first failure.
func (p *publisher) close() error {
	p.stop()
	p.work.Wait()
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// rest waits. Less than nothing is over.
func rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
