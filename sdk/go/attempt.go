package berth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// inFlightPatience is longer than the API works on a request, not counting its wait for room.
const inFlightPatience = 15 * time.Second

// call is one logical call of the API: the same bytes on every attempt.
type call struct {
	method   string
	url      string
	token    string        // bearer
	key      string        // Idempotency-Key; empty: none
	wait     time.Duration // how long the API may let it wait for room, over all attempts
	body     any           // nil: none
	answer   any           // nil: ignored
	replayed *bool         // told whether the answer is that of an earlier request with the same key; nil: ignored
}

// do makes a call with retries.
func (c *Client) do(ctx context.Context, k call) error {
	return c.doLimited(ctx, k, c.maxRetries)
}

func (c *Client) doLimited(ctx context.Context, k call, maxRetries int) error {
	body, err := encodeBody(k.body)
	if err != nil {
		return err
	}
	limits := retryLimits{maxRetries: maxRetries, maxWait: c.maxRetryWait}
	p := progress{began: time.Now(), wait: k.wait, patience: inFlightPatience + k.wait}
	for {
		k.wait = p.waitLeft()
		override, err := c.attempt(ctx, k, body, p.sent)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", k.method, err)
		}
		wait, again := decide(p.outcome(ctx, err, override), limits, c.random(), c.random())
		if !again {
			return err
		}
		if c.sleep(ctx, wait) != nil {
			return fmt.Errorf("gave up waiting for a retry: %w (last answer: %w)", context.Cause(ctx), err)
		}
	}
}

// progress is what is known about a call after some attempts.
type progress struct {
	began    time.Time
	wait     time.Duration // the call's
	patience time.Duration // how long an attempt that is in flight may be worked on
	sent     int           // attempts made
	retries  int           // those that failed, so that the next is a retry
	inFlight time.Time     // when the API first said that an earlier attempt is in flight; zero: it did not
}

// waitLeft is what is left of the time for which the API may let the call wait, in whole seconds.
func (p *progress) waitLeft() time.Duration {
	return max(0, p.wait-time.Since(p.began)).Round(time.Second)
}

// outcome describes a failed attempt to decide, and counts it. An error that is neither a refusal nor a transport error
// is this program's own and is not repeated.
func (p *progress) outcome(ctx context.Context, err error, override string) outcome {
	o := outcome{retries: p.retries, override: override, remaining: remaining(ctx)}
	p.sent++
	e, refused := errors.AsType[*Error](err)
	if refused {
		o.status, o.code, o.retryAfter = e.Status, e.Code, e.RetryAfter
		o.inFlight = e.Status == http.StatusConflict && e.Retryable
	} else if _, ok := errors.AsType[*transportError](err); !ok {
		o.override = "false"
	}
	switch {
	case o.inFlight:
		if p.inFlight.IsZero() {
			p.inFlight = time.Now()
		}
		o.retries = 0 // nothing failed; who wants no retries is not made to wait all the same
		o.remaining = min(o.remaining, p.patience-time.Since(p.inFlight))
		return o
	case o.code == CodeAtCapacity && p.wait > 0:
		// It waited for as long as it was asked to, unless the API could not let it wait.
		o.remaining = min(o.remaining, p.wait-time.Since(p.began))
	}
	p.retries++
	return o
}

// remaining is the time until the context's deadline.
func remaining(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return forever
	}
	return time.Until(deadline)
}
