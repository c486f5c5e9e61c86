package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

const (
	// attempt bounds one request, and attempts all for one answer.
	attempt  = 7 * time.Second
	attempts = 30 * time.Second
	// attemptPause comes before a request is repeated.
	attemptPause = 100 * time.Millisecond
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 8 << 20
	// idleConnections are kept to each API.
	idleConnections = 64
)

// client asks the API processes of a scene in turn. It is safe for concurrent use.
type client struct {
	http *http.Client
	keys map[string]string // by tenant
	apis []*member
	turn atomic.Int64
}

func newClient(keys map[string]string, apis []*member) *client {
	return &client{
		http: &http.Client{Timeout: attempt, Transport: &http.Transport{MaxIdleConnsPerHost: idleConnections}},
		keys: keys, apis: apis,
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// next is an API that no fault has taken away.
func (c *client) next() *member {
	for range c.apis {
		if m := c.apis[int(c.turn.Add(1))%len(c.apis)]; !m.away.Load() {
			return m
		}
	}
	return c.apis[0]
}

// statusError is an answer that is none of those that were expected.
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

// do makes one request, to any API.
func (c *client) do(ctx context.Context, method, path, token string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.next().address+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	said, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if !slices.Contains([]int{http.StatusOK, http.StatusCreated, http.StatusNoContent}, response.StatusCode) {
		return &statusError{response.StatusCode, string(said)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(said, answer)
}

// insist repeats a request until it is answered.
func (c *client) insist(ctx context.Context, method, path, token string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, attempts)
	defer cancel()
	for {
		err := c.do(ctx, method, path, token, body, answer)
		if err == nil || !retryable(err) {
			return err
		}
		if rest(ctx, attemptPause) != nil {
			return err
		}
	}
}

// seat places a peer of a call, and the call if it is the first.
func (c *client) seat(ctx context.Context, session, peer string) (*sdk.Placement, error) {
	var p sdk.Placement
	err := c.insist(ctx, http.MethodPost, "/v1/sessions", c.keys[tenantCalls], map[string]any{
		"id": session, "kind": "call", "region": region, "peer": map[string]any{"id": peer},
	}, &p)
	if err != nil {
		return nil, fmt.Errorf("place peer %s of %s: %w", peer, session, err)
	}
	return &p, nil
}

// rejoin places a peer anew that lost its worker. With an error, its placement is the old one.
func (c *client) rejoin(ctx context.Context, lost *sdk.Placement) (*sdk.Placement, error) {
	var p sdk.Placement
	err := c.insist(ctx, http.MethodPost, "/v1/sessions/"+lost.ID+"/rejoin", lost.RejoinToken,
		map[string]any{"generation": lost.Generation, "lost": true}, &p)
	if err != nil {
		return lost, fmt.Errorf("rejoin %s: %w", lost.ID, err)
	}
	return &p, nil
}

// end ends a session, whoever knows of it.
func (c *client) end(ctx context.Context, tenant, session string) error {
	return c.insist(ctx, http.MethodDelete, "/v1/sessions/"+session, c.keys[tenant], struct{}{}, nil)
}
