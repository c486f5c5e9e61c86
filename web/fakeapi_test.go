package web_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/web"
)

const operatorKey = "berth_operator_k1_test"

// fakeAPI answers the calls that the pages make, from plain values.
type fakeAPI struct {
	URL string

	mu       sync.Mutex
	workers  []map[string]any
	sessions []map[string]any
	waiting  map[string]int // by region; "" for any
	refusal  *problem       // answered to every GET under /v1 while set
	calls    []string       // drain calls and kills: "METHOD path body"
	rejoins  []map[string]any
	answers  []func(http.ResponseWriter) // to rejoins, in order; then placements
	places   int
}

type problem struct {
	status     int
	retryAfter string
	code       string
	detail     string
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{}
	mux := http.NewServeMux()
	mux.Handle("/", web.Handler(web.Config{Dev: true}))
	mux.HandleFunc("GET /v1/workers", f.read(func() any { return page(f.workers) }))
	mux.HandleFunc("GET /v1/sessions", f.read(func() any { return page(f.sessions) }))
	mux.HandleFunc("GET /v1/capacity", f.read(f.capacity))
	mux.HandleFunc("/v1/workers/{id}/drain", f.record)
	mux.HandleFunc("POST /v1/sessions/{id}/rejoin", f.rejoin)
	mux.HandleFunc("POST /demo/sessions", f.place)
	mux.HandleFunc("POST /demo/kill", f.record)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	f.URL = server.URL
	return f
}

// set changes what the API knows.
func (f *fakeAPI) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// called returns the calls recorded so far.
func (f *fakeAPI) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// rejoined returns the rejoin calls recorded so far.
func (f *fakeAPI) rejoined() []map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]map[string]any(nil), f.rejoins...)
}

func page(items []map[string]any) any { return map[string]any{"data": items, "has_more": false} }

// capacity is what waits, by region; what else the API answers no page reads. The caller holds mu.
func (f *fakeAPI) capacity() any {
	regions, total := []map[string]any{}, 0
	for _, region := range slices.Sorted(maps.Keys(f.waiting)) {
		row := map[string]any{"waiting": f.waiting[region]}
		if region != "" {
			row["region"] = region
		}
		regions = append(regions, row)
		total += f.waiting[region]
	}
	return map[string]any{"data": regions, "total": map[string]any{"waiting": total}}
}

// read answers an operator's GET. value is called with mu held.
func (f *fakeAPI) read(value func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer "+operatorKey:
			refuse(w, problem{status: http.StatusUnauthorized, code: "unauthenticated", detail: "The key is not known."})
		case f.refusal != nil:
			refuse(w, *f.refusal)
		default:
			answer(w, http.StatusOK, value())
		}
	}
}

// record notes the call and answers 204.
func (f *fakeAPI) record(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body any
	_ = json.NewDecoder(r.Body).Decode(&body) // DELETE has none
	text, _ := json.Marshal(body)
	f.calls = append(f.calls, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, text))
	w.WriteHeader(http.StatusNoContent)
}

func (f *fakeAPI) place(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusal != nil {
		refuse(w, *f.refusal)
		return
	}
	answer(w, http.StatusCreated, f.nextPlacement())
}

func (f *fakeAPI) rejoin(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := map[string]any{"authorization": r.Header.Get("Authorization")}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		refuse(w, problem{status: http.StatusBadRequest, code: "invalid_argument"})
		return
	}
	f.rejoins = append(f.rejoins, call)
	if len(f.answers) > 0 {
		first := f.answers[0]
		f.answers = f.answers[1:]
		first(w)
		return
	}
	answer(w, http.StatusOK, f.nextPlacement())
}

// nextPlacement is on w-1, then w-2, and so on, with generations 1, 2, ... The caller holds mu.
func (f *fakeAPI) nextPlacement() map[string]any {
	f.places++
	worker := fmt.Sprintf("w-%d", f.places)
	return map[string]any{
		"id": "s-1", "kind": "media", "state": "assigned", "generation": f.places, "region": "eu-west",
		"owner":        map[string]any{"worker_id": worker, "signaling_url": "ws://" + worker + ".test/rtc?session=s-1"},
		"peer":         map[string]any{"id": "p-1", "role": "offer"},
		"token":        fmt.Sprintf("gen-%d", f.places),
		"rejoin_token": "again", "rejoin_url": f.URL + "/v1/sessions/s-1/rejoin",
		"ice_servers": []any{},
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the page is gone
}

func refuse(w http.ResponseWriter, p problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	if p.retryAfter != "" {
		w.Header().Set("Retry-After", p.retryAfter)
	}
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the page is gone
		"status": p.status, "code": p.code, "detail": p.detail, "request_id": "req-1", "retryable": p.status >= 500,
	})
}

func worker(id, state string, capacity, used int) map[string]any {
	now := time.Now()
	free := 0
	if state == "ready" {
		free = capacity - used
	}
	return map[string]any{
		"id": id, "instance": 1, "region": "eu-west", "state": state, "capacity": capacity, "used": used, "free": free,
		"signaling_url": "ws://" + id + ".test/rtc", "control_url": "http://" + id + ".test", "version": "v1.0.0",
		"registered_at": now.Add(-time.Hour), "renewed_at": now, "lease_expires_at": now.Add(6 * time.Second),
	}
}

func session(id, state, workerID string, generation int) map[string]any {
	s := map[string]any{
		"id": id, "tenant_id": "acme", "kind": "media", "state": state, "generation": generation, "region": "eu-west",
		"handler": "echo", "created_at": time.Now().Add(-time.Minute),
	}
	if workerID != "" {
		s["owner"] = map[string]any{"worker_id": workerID}
	}
	return s
}
