package berth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// maxAnswerBytes bounds what is read of a successful answer: a full page of sessions with metadata fits.
const maxAnswerBytes = 4 << 20

// call is one logical call of the API: the same bytes on every attempt.
type call struct {
	method string
	url    string
	token  string // bearer
	body   any    // nil: none
	answer any    // nil: ignored
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
	for retries := 0; ; retries++ {
		override, err := c.attempt(ctx, k, body, retries)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", k.method, err)
		}
		o := outcomeOf(err, override, retries, remaining(ctx))
		wait, again := decide(o, limits, c.random(), c.random())
		if !again {
			return err
		}
		if c.sleep(ctx, wait) != nil {
			return fmt.Errorf("gave up waiting for a retry: %w (last answer: %w)", context.Cause(ctx), err)
		}
	}
}

func encodeBody(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("berth: encode request: %w", err)
	}
	return body, nil
}

// attempt sends the call once. override is the answer's Berth-Should-Retry field.
func (c *Client) attempt(ctx context.Context, k call, body []byte, retries int) (override string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
	defer cancel()
	req, err := newRequest(ctx, k, body, retries)
	if err != nil {
		return "false", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", &transportError{fmt.Errorf("berth: %w", err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.Header.Get("Berth-Should-Retry"), readError(resp, time.Now())
	}
	return "", readAnswer(resp, k.answer)
}

func newRequest(ctx context.Context, k call, body []byte, retries int) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, k.url, reader)
	if err != nil {
		return nil, fmt.Errorf("berth: %w", err)
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", "berth-go")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.token != "" {
		req.Header.Set("Authorization", "Bearer "+k.token)
	}
	if retries > 0 {
		req.Header.Set("X-Berth-Retry-Count", strconv.Itoa(retries))
	}
	return req, nil
}

// readAnswer decodes a success. Members that this version does not know are ignored. A body that breaks off is a
// connection error.
func readAnswer(resp *http.Response, answer any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return &transportError{fmt.Errorf("berth: read answer: %w", err)}
	}
	if answer == nil || len(body) == 0 {
		return nil
	}
	if len(body) > maxAnswerBytes {
		return &Error{Status: resp.StatusCode, Code: CodeTooLarge, Detail: "The answer is too large to read."}
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("berth: decode answer: %w", err)
	}
	return nil
}

// outcomeOf describes a failed attempt to decide. An error that is neither a refusal nor a transport error is this
// program's own and is not repeated.
func outcomeOf(err error, override string, retries int, left time.Duration) outcome {
	o := outcome{retries: retries, override: override, remaining: left}
	if e, ok := errors.AsType[*Error](err); ok {
		o.status, o.code, o.retryAfter = e.Status, e.Code, e.RetryAfter
		return o
	}
	if _, ok := errors.AsType[*transportError](err); !ok {
		o.override = "false"
	}
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
