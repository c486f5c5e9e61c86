package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/berthdev/berth/bench/socket"
	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	// pingers are clients that ask their worker for nothing, to see how fast it answers.
	pingers = 20
	// pingEvery is between two questions of one.
	pingEvery = 200 * time.Millisecond
)

// pinger is a client of a survivor that asks its worker, again and again, what takes no database: to forget a topic that it
// does not listen to. It is one that is connected already, and so no SDK's.
type pinger struct {
	conn *socket.Conn

	mu      sync.Mutex // guards the rest
	asked   map[string]time.Time
	answers []latency
	failed  error
}

// ping connects a pinger, which asks until its connection is closed.
func ping(ctx context.Context, p *sdk.Placement, asking *sync.WaitGroup) (*pinger, error) {
	conn, err := socket.Join(ctx, p, socket.Options{})
	if err != nil {
		return nil, err
	}
	one := &pinger{conn: conn, asked: map[string]time.Time{}}
	ended := make(chan struct{})
	asking.Go(func() {
		defer close(ended)
		one.fail(conn.Run(one.hear))
	})
	asking.Go(func() { one.ask(ended) })
	return one, nil
}

// ask sends a question when it is time.
func (p *pinger) ask(ended <-chan struct{}) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		id := fmt.Sprintf("q%d", n)
		p.mu.Lock()
		p.asked[id] = time.Now()
		p.mu.Unlock()
		if err := p.conn.Write([]byte(`{"type":"unsubscribe","id":"` + id + `","topics":["nothing"]}`)); err != nil {
			return // whoever reads knows
		}
	}
}

func (p *pinger) hear(message []byte) {
	now := time.Now()
	if socket.Kind(message) != "unsubscribed" {
		return
	}
	var f struct {
		ReplyTo string `json:"reply_to"`
	}
	if json.Unmarshal(message, &f) != nil {
		return // no worker sends that
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, known := p.asked[f.ReplyTo]; known {
		delete(p.asked, f.ReplyTo)
		p.answers = append(p.answers, latency{at, now.Sub(at)})
	}
}

func (p *pinger) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = err
}

// err is why the connection ended; nil: it stands.
func (p *pinger) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// heard returns how long answers took.
func (p *pinger) heard() []latency {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers
}
