package berth

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// fakeAPI answers calls with a script: the n-th request gets the n-th answer, later ones the last.
type fakeAPI struct {
	*httptest.Server

	mu       sync.Mutex
	answers  []func(http.ResponseWriter, *http.Request)
	requests []recordedRequest
}

type recordedRequest struct {
	method, path, query, bearer, retryCount, key, prefer string
	body                                                 map[string]any
}

func newFakeAPI(t *testing.T, answers ...func(http.ResponseWriter, *http.Request)) *fakeAPI {
	t.Helper()
	f := &fakeAPI{answers: answers}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(raw, &body)
	f.mu.Lock()
	f.requests = append(f.requests, recordedRequest{
		method: r.Method, path: r.URL.Path, query: r.URL.RawQuery,
		bearer: r.Header.Get("Authorization"), retryCount: r.Header.Get("X-Berth-Retry-Count"),
		key: r.Header.Get("Idempotency-Key"), prefer: r.Header.Get("Prefer"), body: body,
	})
	answer := f.answers[min(len(f.requests), len(f.answers))-1]
	f.mu.Unlock()
	answer(w, r)
}

// seen returns the requests so far.
func (f *fakeAPI) seen() []recordedRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]recordedRequest(nil), f.requests...)
}

func answerJSON(status int, v any) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
}

// refuse answers with a problem document; headers are name, value pairs.
func refuse(status int, code Code, headers ...string) func(http.ResponseWriter, *http.Request) {
	return refuseFor(status, code, status >= 500, headers...)
}

// inFlight says that the request is being worked on.
func inFlight() func(http.ResponseWriter, *http.Request) {
	return refuseFor(http.StatusConflict, CodeConflict, true, "Retry-After", "1")
}

func refuseFor(status int, code Code, retryable bool, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"code": code, "detail": "No.", "request_id": "req-1", "retryable": retryable,
		})
	}
}

// naps records the waits a client asked for; none of them takes time.
type naps struct {
	mu    sync.Mutex
	waits []time.Duration
}

func (n *naps) sleep(ctx context.Context, d time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits = append(n.waits, d)
	return ctx.Err()
}

func (n *naps) all() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]time.Duration(nil), n.waits...)
}

// testClient is a client of url that records its waits instead of waiting.
func testClient(t *testing.T, config Config) (*Client, *naps) {
	t.Helper()
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	n := &naps{}
	c.sleep = n.sleep
	return c, n
}

// offline is a client without a network, so that fake time can pass. answer gets the number of the request.
func offline(t *testing.T, answer func(request int) *http.Response) *Client {
	t.Helper()
	requests := 0
	transport := roundTrip(func(*http.Request) (*http.Response, error) {
		requests++
		return answer(requests), nil
	})
	client, err := New(Config{URL: "http://api", HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// problemResponse is a refusal with a Retry-After field.
func problemResponse(status int, code Code, retryable bool, retryAfter string) *http.Response {
	header := http.Header{"Retry-After": {retryAfter}, "Content-Type": {"application/problem+json"}}
	body := fmt.Sprintf(`{"code":%q,"retryable":%t}`, code, retryable)
	return &http.Response{StatusCode: status, Header: header, Body: readCloser(body)}
}
