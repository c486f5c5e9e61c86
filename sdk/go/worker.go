package berth

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Workers iterates over all workers, by id. It needs an operator's key.
func (c *Client) Workers(ctx context.Context) iter.Seq2[*Worker, error] {
	return pages[Worker](ctx, c, nil, "v1", "workers")
}

// Worker reads a worker. It needs an operator's key.
func (c *Client) Worker(ctx context.Context, id string) (*Worker, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	u, err := c.endpoint("v1", "workers", id)
	if err != nil {
		return nil, err
	}
	var w Worker
	if err := c.do(ctx, call{method: http.MethodGet, url: u, token: c.apiKey, answer: &w}); err != nil {
		return nil, err
	}
	return &w, nil
}

// DrainWorker says how to drain a worker.
type DrainWorker struct {
	// Deadline is how long sessions may stay, 1 s to 24 h in whole seconds. Default: 1 h.
	Deadline time.Duration

	// Override replaces the deadline of a drain that runs already; without it the first deadline stands.
	Override bool
}

// drainBody is DrainWorker on the wire.
type drainBody struct {
	DeadlineSeconds int64 `json:"deadline_seconds,omitempty"`
	Override        bool  `json:"override,omitempty"`
}

// DrainWorker keeps new sessions away from a worker; those it has stay until they end or the deadline passes. Once it
// returned without error, nothing is placed there any more. It needs an operator's key.
func (c *Client) DrainWorker(ctx context.Context, id string, drain DrainWorker) (*Worker, error) {
	seconds, err := wholeSeconds("deadline_seconds", drain.Deadline)
	if err != nil {
		return nil, err
	}
	return c.workerCall(ctx, http.MethodPost, id, "drain", drainBody{DeadlineSeconds: seconds, Override: drain.Override})
}

// UndrainWorker undoes a drain. A worker that does not drain stays as it is. It needs an operator's key.
func (c *Client) UndrainWorker(ctx context.Context, id string) (*Worker, error) {
	return c.workerCall(ctx, http.MethodDelete, id, "drain", nil)
}

// ShedWorker moves signaling connections of calls away from a worker: it closes count of them, chosen at random, one by one
// over spread: 1 s to 1 h in whole seconds, default 30 s. Their clients rejoin elsewhere. An order that was not carried out
// yet is replaced. It needs an operator's key.
func (c *Client) ShedWorker(ctx context.Context, id string, count int, spread time.Duration) (*Worker, error) {
	seconds, err := wholeSeconds("spread_seconds", spread)
	if err != nil {
		return nil, err
	}
	return c.workerCall(ctx, http.MethodPost, id, "shed", shedBody{Count: count, SpreadSeconds: seconds})
}

type shedBody struct {
	Count         int   `json:"count"`
	SpreadSeconds int64 `json:"spread_seconds,omitempty"`
}

func (c *Client) workerCall(ctx context.Context, method, id, what string, body any) (*Worker, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	u, err := c.endpoint("v1", "workers", id, what)
	if err != nil {
		return nil, err
	}
	var w Worker
	if err := c.do(ctx, call{method: method, url: u, token: c.apiKey, body: body, answer: &w}); err != nil {
		return nil, err
	}
	return &w, nil
}
