package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/bench/load"
)

const (
	// ClaimsAside is the name of the process that starts sessions meanwhile, see [ServeClaims].
	ClaimsAside = "claims"
	// claimants start sessions at a time, each one after the other with a pause between.
	claimants  = 4
	claimPause = 5 * time.Millisecond
	// claimsBefore is how long they do so before the fault.
	claimsBefore = 2 * time.Second
)

// Claims is how long another tenant's starts took while a worker was lost, in milliseconds.
type Claims struct {
	N      int     `json:"n"`
	Failed int     `json:"failed"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
	Before float64 `json:"before_p99_ms"` // of starts before the worker was lost

	BeforeN int  `json:"before_n"`
	GaveWay bool `json:"clients_gave_way"` // the clients of calls ran only when nobody else wanted the core
}

// claimsTask says who starts sessions, and where.
type claimsTask struct {
	APIs []string `json:"apis"` // addresses
	Key  string   `json:"key"`
}

// claimed is one start.
type claimed struct {
	At     time.Time `json:"at"` // when it was asked for
	Took   float64   `json:"took_ms"`
	Failed bool      `json:"failed,omitempty"`
}

// claims is another tenant that starts and ends sessions until it is stopped, in a process of its own: clients of calls that
// wake by the thousand would make its requests wait before they are sent.
type claims struct {
	aside    *lab.Aside
	from, to time.Time // what counts
	all      []claimed
}

func (s *scene) startClaims(ctx context.Context) (*claims, error) {
	task := claimsTask{Key: s.rig.keys[tenantOther]}
	for _, m := range s.apis {
		task.APIs = append(task.APIs, m.address)
	}
	command := exec.Command(s.rig.cfg.Binary, "bench", "aside", ClaimsAside) //nolint:noctx // StartAside ends it
	aside, err := lab.StartAside(ctx, command, task)
	if err != nil {
		return nil, fmt.Errorf("another tenant: %w", err)
	}
	_ = rest(ctx, claimsBefore) // whoever goes on notices the end of ctx
	return &claims{aside: aside}, nil
}

// mark says that the fault is now. It cannot fail.
func (c *claims) mark() error {
	c.from = time.Now()
	return nil
}

// stop ends the claims and waits for the last one.
func (c *claims) stop(ctx context.Context) error {
	c.to = time.Now()
	return c.aside.Finish(&c.all)
}

// result is about the starts that were asked for from the fault on, and those before it. Those that were not answered at the
// end, one per claimant at most, are in neither.
func (c *claims) result() *Claims {
	var r Claims
	var before, took []float64
	for _, one := range c.all {
		switch {
		case one.At.Before(c.from):
			before = append(before, one.Took)
		case one.At.Before(c.to):
			took = append(took, one.Took)
			if one.Failed {
				r.Failed++
			}
		}
	}
	slices.Sort(before)
	slices.Sort(took)
	r.N, r.P50, r.P99, r.Max = len(took), load.Percentile(took, 50), load.Percentile(took, 99), load.Percentile(took, 100)
	r.Before, r.BeforeN = load.Percentile(before, 99), len(before)
	return &r
}

// ServeClaims is the process of [ClaimsAside].
func ServeClaims(ctx context.Context, in io.Reader, out io.Writer) error {
	return lab.ServeAside(ctx, in, out, func(ctx context.Context, task claimsTask, ready func() error) (any, error) {
		var members []*member
		for _, address := range task.APIs {
			members = append(members, &member{address: address})
		}
		c := claimant{client: newClient(map[string]string{tenantOther: task.Key}, members)}
		defer c.client.close()
		var running sync.WaitGroup
		for range claimants {
			running.Go(func() { c.run(ctx) })
		}
		err := ready()
		running.Wait()
		return c.all, err
	})
}

// claimant starts and ends sessions.
type claimant struct {
	client *client
	ids    atomic.Int64

	mu  sync.Mutex // guards all
	all []claimed
}

func (c *claimant) run(ctx context.Context) {
	key := c.client.keys[tenantOther]
	for ctx.Err() == nil {
		id := fmt.Sprintf("other-%d", c.ids.Add(1))
		began := time.Now()
		err := c.client.do(ctx, http.MethodPost, "/v1/sessions", key, map[string]any{"id": id, "region": region}, nil)
		took := milliseconds(time.Since(began))
		if errors.Is(err, context.Canceled) {
			return // it was cut
		}
		c.note(claimed{At: began, Took: took, Failed: err != nil})
		if err == nil {
			_ = c.client.do(ctx, http.MethodDelete, "/v1/sessions/"+id, key, struct{}{}, nil) // it ends by itself
		}
		_ = rest(ctx, claimPause) // the loop asks
	}
}

func (c *claimant) note(one claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}
