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
	return c.drainCall(ctx, http.MethodPost, id, drainBody{DeadlineSeconds: seconds, Override: drain.Override})
}

// UndrainWorker undoes a drain. A worker that does not drain stays as it is. It needs an operator's key.
func (c *Client) UndrainWorker(ctx context.Context, id string) (*Worker, error) {
	return c.drainCall(ctx, http.MethodDelete, id, nil)
}

func (c *Client) drainCall(ctx context.Context, method, id string, body any) (*Worker, error) {
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	u, err := c.endpoint("v1", "workers", id, "drain")
	if err != nil {
		return nil, err
	}
	var w Worker
	if err := c.do(ctx, call{method: method, url: u, token: c.apiKey, body: body, answer: &w}); err != nil {
		return nil, err
	}
	return &w, nil
}
