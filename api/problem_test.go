package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/telemetry"
)

func TestEveryCodeIsMappedOnceAndExplained(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]kind{}
	for _, k := range problemKinds() {
		if _, twice := kinds[string(k.code)]; twice || k.title == "" || k.meaning == "" || k.remedy == "" {
			t.Errorf("%s is there twice or not explained", k.code)
		}
		kinds[string(k.code)] = k
	}
	documented := doc.Components.Schemas["Code"].Value.Enum
	if len(documented) != len(kinds) {
		t.Errorf("openapi.yaml has %d codes, the mapping %d", len(documented), len(kinds))
	}
	r := newRig(t, nil)
	page := string(r.call("GET", "/docs/errors", "", "").body)
	for _, code := range documented {
		if _, ok := kinds[fmt.Sprint(code)]; !ok || !strings.Contains(page, fmt.Sprintf(`id="%s"`, code)) {
			t.Errorf("%v is not mapped, or has no anchor", code)
		}
	}
}

func TestProblemHasAllItsMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.PublicURL = "https://api.example.com" })
	request := r.request("GET", "/v1/sessions/none", r.tenant, http.NoBody)
	request.Header.Set("X-Request-Id", "mine-1")
	got := r.send(request).problem(t)
	want := wire.Problem{
		Type: "https://api.example.com/docs/errors#not_found", Title: "Not found", Status: 404, Detail: "There is no such session.",
		Instance: "urn:berth:request:mine-1", Code: "not_found", RequestID: "mine-1",
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	request.Header.Set("X-Request-Id", "two words")
	if a := r.send(request); a.Header.Get("X-Request-Id") == "two words" || a.Header.Get("X-Request-Id") != a.problem(t).RequestID {
		t.Errorf("request id %q", a.Header.Get("X-Request-Id"))
	}
}

func TestErrorsShowNothingOfTheirCause(t *testing.T) {
	t.Parallel()
	const secret = "insert into berth.sessions: SQLSTATE 42601"
	for name, tc := range map[string]struct {
		err    error
		status int
		code   wire.Code
	}{
		"unknown":     {errors.New(secret), 500, "internal"},
		"unavailable": {fmt.Errorf("%s: %w", secret, berth.ErrUnavailable), 503, "unavailable"},
		"timeout":     {fmt.Errorf("%s: %w", secret, context.DeadlineExceeded), 503, "unavailable"},
		"stale":       {fmt.Errorf("%s: %w", secret, berth.ErrStale), 500, "internal"},
		"refusal":     {fmt.Errorf("%s: %w", secret, berth.Refuse(berth.CodeConflict, "Of another kind.")), 409, "conflict"},
		"made-up":     {berth.Refuse("surprise", "x"), 500, "internal"},
	} {
		server, err := New(dependencies(t, newStore()), Config{})
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		server.service.fail(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/sessions", http.NoBody), tc.err)
		problem := parse[wire.Problem](t, reply{answer.Result(), answer.Code, answer.Body.Bytes()})
		if answer.Code != tc.status || problem.Code != tc.code || strings.Contains(answer.Body.String(), "SQLSTATE") {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
}

func TestRetryAfterIsNeverEarlyAndSpreads(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, 1, time.Second, 1500 * time.Millisecond, 30 * time.Second, time.Hour} {
		seen := map[int]bool{}
		for range 200 {
			seconds := retryAfter(&berth.Refusal{Code: berth.CodeAtCapacity, RetryAfter: wait})
			seen[seconds] = true
			if seconds < 1 || seconds > 300 || time.Duration(seconds)*time.Second < min(wait, 290*time.Second) || seconds > 2*int(wait/time.Second+2) {
				t.Fatalf("%v becomes %d s", wait, seconds)
			}
		}
		if len(seen) < 2 {
			t.Errorf("%v is not spread", wait)
		}
	}
	if got := retryAfter(berth.Refuse(berth.CodeConcurrentSessions, "")); got != 0 {
		t.Errorf("a quota says %d", got)
	}
	if got := retryAfter(&berth.Refusal{Code: berth.CodeStartRateLimited, RetryAfter: time.Hour}); got < 3600 {
		t.Errorf("a token that comes in an hour is asked for after %d s", got)
	}
}

func TestPanicIsOneInternalError(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	handler := r.server.service.observe(r.server.service.recoverPanic(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("select 1") })))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, routedRequest(t))
	if answer.Code != 500 || strings.Contains(answer.Body.String(), "select") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

func TestCallerWhoLeavesIsNoServerError(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewHTTPMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config, s *store) { c.HTTPMetrics = metrics; s.block = make(chan struct{}) })
	ctx, cancel := context.WithCancel(t.Context())
	request := r.request("POST", "/v1/sessions", r.tenant, strings.NewReader(`{}`)).WithContext(ctx)
	answered := make(chan error, 1)
	go func() {
		response, err := r.client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		answered <- err
	}()
	<-r.store.entered
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	stop(t, r.server) // waits for the handler
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range families[0].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "code" && label.GetValue() != "499" {
				t.Errorf("counted as %s", label.GetValue())
			}
		}
	}
}

func TestSlowDatabaseIsUnavailableInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, s *store) { c.RequestTimeout = 100 * time.Millisecond; s.frozen.Store(true) })
	for _, call := range []string{"POST /v1/sessions", "GET /v1/sessions", "GET /v1/sessions/a", "DELETE /v1/sessions/a", "POST /v1/sessions/a/peers"} {
		method, path, _ := strings.Cut(call, " ")
		body := ""
		if method == "POST" {
			body = `{}`
		}
		if a := r.call(method, path, r.tenant, body); a.status != 503 || a.problem(t).Code != "unavailable" {
			t.Errorf("%s: %d %s", call, a.status, a.body)
		}
	}
}
