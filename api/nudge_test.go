package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

func TestOwnerIsNudgedWithASignedRequest(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 10)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(control.Close)
	r := newRig(t, func(_ *Config, s *store) {
		s.workers = s.workers[:1]
		s.workers[0].ControlURL = control.URL + "/"
	})
	keys, ok := r.server.service.deps.SigningKeys.(*auth.Keys)
	if !ok {
		t.Fatal("the keys are not auth's")
	}
	verifier := auth.NewVerifier(keys, "w-1")
	r.place(`{"id":"s-1"}`)
	r.place(`{"id":"unused"}`)
	r.store.mu.Lock()
	r.store.live("t-1", "s-1").State = berth.SessionActive
	r.store.mu.Unlock()
	r.call("DELETE", "/v1/sessions/unused", r.tenant, "") // nobody is there to be told
	for _, call := range []string{"DELETE /v1/sessions/s-1", "POST /v1/workers/w-1/drain", "DELETE /v1/workers/w-1/drain"} {
		method, path, _ := strings.Cut(call, " ")
		key := r.operator
		if strings.Contains(path, "sessions") {
			key = r.tenant
		}
		r.call(method, path, key, "")
		request := <-got
		token, _ := auth.ParseBearer(request.Header.Get("Authorization"))
		if request.Method != http.MethodPost || request.URL.Path != "/nudge" {
			t.Errorf("%s: %s %s", call, request.Method, request.URL.Path)
		}
		if err := verifier.VerifyNudge(t.Context(), token, 7, r.store.now); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
	r.call("DELETE", "/v1/sessions/s-1", r.tenant, "") // ended already: nobody to tell
	select {
	case <-got:
		t.Error("an ended session nudged again")
	default:
	}
}

func TestNudgesNeverBlockAndAreLostWhenTooMany(t *testing.T) {
	t.Parallel()
	s := newStore()
	n := newNudger(s, nil, newDatabaseClock(s.Clock), testkit.Logger(t))
	for range 3 { // nobody sends them
		for i := range 2 * nudgeQueue {
			n.send(strings.Repeat("w", 1+i%100) + strings.Repeat("x", i/100))
		}
	}
	if len(n.queue) != nudgeQueue || len(n.pending) != nudgeQueue {
		t.Errorf("%d queued, %d pending, want %d", len(n.queue), len(n.pending), nudgeQueue)
	}
}
