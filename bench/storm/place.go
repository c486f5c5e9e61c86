package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	// attempt bounds one request, and attempts all for one seat.
	attempt  = 15 * time.Second
	attempts = time.Minute
	// attemptPause comes before a request is repeated.
	attemptPause = 100 * time.Millisecond
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
	// idleConnections are kept to each API by who places.
	idleConnections = 64
)

// backend places peers of calls, as a tenant's would. It is safe for concurrent use.
type backend struct {
	urls   []string // of API processes, which it asks in turn
	path   string   // of placing
	region string   // empty: the tenant's
	header http.Header
	http   *http.Client
	turn   atomic.Int64
}

// newBackend places by POST of urls and path, with some headers.
func newBackend(urls []string, path, region string, header http.Header) *backend {
	header = header.Clone()
	header.Set("Content-Type", "application/json")
	return &backend{
		urls: urls, path: path, region: region, header: header,
		http: &http.Client{Timeout: attempt, Transport: &http.Transport{MaxIdleConnsPerHost: idleConnections}},
	}
}

func (b *backend) close() { b.http.CloseIdleConnections() }

// seat places a peer of a call, and the call if it is the first. The peer may publish to any topic.
func (b *backend) seat(ctx context.Context, call, peer string) (*sdk.Placement, error) {
	ctx, cancel := context.WithTimeout(ctx, attempts)
	defer cancel()
	body := map[string]any{
		"id": call, "kind": "call", "peer": map[string]any{"id": peer, "topics": map[string]any{"publish": []string{"*"}}},
	}
	if b.region != "" {
		body["region"] = b.region
	}
	for {
		p := &sdk.Placement{}
		err := b.post(ctx, b.path, body, p)
		if err == nil {
			return p, nil
		}
		if !retryable(err) || rest(ctx, attemptPause) != nil {
			return nil, fmt.Errorf("place peer %s of %s: %w", peer, call, err)
		}
	}
}

// statusError is an answer that is no success.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// retryable says whether the same request may be answered otherwise a little later.
func retryable(err error) bool {
	refused, isStatus := errors.AsType[*statusError](err)
	return !isStatus || refused.status == http.StatusServiceUnavailable
}

// post makes one request, to any API.
func (b *backend) post(ctx context.Context, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	base := b.urls[int(b.turn.Add(1))%len(b.urls)]
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header = b.header
	response, err := b.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	said, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case response.StatusCode >= 300:
		return &statusError{response.StatusCode, string(said)}
	case answer == nil:
		return nil
	default:
		return json.Unmarshal(said, answer)
	}
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eventually asks until ok says so, or the time is over.
func eventually(ctx context.Context, limit time.Duration, ok func() bool) bool {
	const period = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !ok() {
		if rest(ctx, period) != nil {
			return ok()
		}
	}
	return true
}
