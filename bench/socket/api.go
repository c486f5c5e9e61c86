package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	// attempt bounds one request.
	attempt = 15 * time.Second
	// attemptPause comes before a request is repeated.
	attemptPause = 100 * time.Millisecond
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 8 << 20
	// idleConnections are kept to the API.
	idleConnections = 256
	// idleLimit is less than servers wait for the first request of a connection, which may have been made in vain.
	idleLimit = 2 * time.Second
)

// API is an API process, as a tenant's backend has it. It is safe for concurrent use.
type API struct {
	url  string
	key  string
	http *http.Client
}

// NewAPI returns the API at a base URL for a tenant's key. It must be closed.
func NewAPI(base, key string) *API {
	transport := &http.Transport{MaxIdleConns: idleConnections, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleLimit}
	return &API{url: base, key: key, http: &http.Client{Timeout: attempt, Transport: transport}}
}

// Close drops the connections that are idle.
func (a *API) Close() { a.http.CloseIdleConnections() }

// StatusError is an answer that is no success.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Body) }

// Place seats a peer of a call, and the call if it is the first. An API that is away or refuses for now is asked again for as
// long as ctx lasts.
func (a *API) Place(ctx context.Context, session, peer, region string) (*sdk.Placement, error) {
	var p sdk.Placement
	ask := map[string]any{"id": session, "kind": "call", "region": region, "peer": map[string]any{"id": peer}}
	for {
		err := a.do(ctx, "/v1/sessions", a.key, ask, &p)
		if err == nil {
			return &p, nil
		}
		if !retryable(err) || rest(ctx, attemptPause) != nil {
			return nil, fmt.Errorf("place peer %s of %s: %w", peer, session, err)
		}
	}
}

// Rejoin asks once where a peer belongs that lost its worker. A refusal is a [*StatusError].
func (a *API) Rejoin(ctx context.Context, lost *sdk.Placement) (*sdk.Placement, error) {
	var p sdk.Placement
	err := a.do(ctx, "/v1/sessions/"+lost.ID+"/rejoin", lost.RejoinToken, map[string]any{"generation": lost.Generation, "lost": true}, &p)
	if err != nil {
		return nil, fmt.Errorf("rejoin %s: %w", lost.ID, err)
	}
	return &p, nil
}

// Publish sends data, which is JSON, to those who listen to a topic. It is tried once.
func (a *API) Publish(ctx context.Context, topic string, data json.RawMessage) (sdk.Published, error) {
	var p sdk.Published
	err := a.do(ctx, "/v1/topics/"+url.PathEscape(topic)+"/messages", a.key, map[string]any{"data": data}, &p)
	return p, err
}

// do makes one request.
func (a *API) do(ctx context.Context, path, token string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	said, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if !slices.Contains([]int{http.StatusOK, http.StatusCreated}, response.StatusCode) {
		return &StatusError{response.StatusCode, string(said)}
	}
	return json.Unmarshal(said, answer)
}

// retryable says whether the same request may be answered otherwise a little later.
func retryable(err error) bool {
	refused, isStatus := errors.AsType[*StatusError](err)
	return !isStatus || refused.Status == http.StatusServiceUnavailable
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
