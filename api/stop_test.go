package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/berthdev/berth/internal/testkit"
)

func stop(t *testing.T, server *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// routedRequest has what chi's router would add.
func routedRequest(t *testing.T) *http.Request {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody)
	return request.WithContext(context.WithValue(request.Context(), chi.RouteCtxKey, chi.NewRouteContext()))
}

func TestScenario_O08_RunningRequestGetsItsAnswerAtStop(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) { s.block = make(chan struct{}) })
	answered := make(chan reply, 1)
	go func() { answered <- r.call("POST", "/v1/sessions", r.tenant, `{}`) }()
	<-r.store.entered
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop(t, r.server)
	}()
	testkit.EventuallyTrue(t, 5*time.Second, "the listener closes", func() bool {
		connection, err := net.Dial("tcp", r.server.Addr().String())
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	})
	select {
	case <-stopped:
		t.Error("stopped before the request was answered")
	default:
	}
	close(r.store.block)
	if a := <-answered; a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
	<-stopped
}

func TestScenario_O10_DrainingServerRefusesStartsPolitelyAndServesTheRest(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.ShutdownDelay = time.Minute })
	placed := r.place(`{"id":"s-1"}`)
	ctx, force := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Stop(ctx) }()
	testkit.EventuallyTrue(t, 5*time.Second, "readiness fails", func() bool { return r.call("GET", "/readyz", "", "").status == 503 })

	a := r.call("POST", "/v1/sessions", r.tenant, `{}`) // checkAnswer looks at Retry-After
	if a.status != 503 || a.problem(t).Code != "unavailable" || !a.Close {
		t.Errorf("start: %d, connection closes: %v: %s", a.status, a.Close, a.body)
	}
	if a := r.call("POST", "/v1/sessions", r.tenant, `{"id":""}`); a.status != 400 {
		t.Errorf("invalid start: %d", a.status)
	}
	for path, status := range map[string]int{"/livez": 200, "/v1/sessions/s-1": 200} {
		if a := r.call("GET", path, r.tenant, ""); a.status != status || !a.Close {
			t.Errorf("%s: %d, connection closes: %v", path, a.status, a.Close)
		}
	}
	if a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, `{"generation":101}`); a.status != 200 {
		t.Errorf("rejoin: %d", a.status)
	}
	force() // the second signal
	if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-r.server.Done()
	if _, err := net.Dial("tcp", r.server.Addr().String()); err == nil {
		t.Error("still listening")
	}
}

func TestLifecycleHoldsInAnyOrder(t *testing.T) {
	t.Parallel()
	fresh := func() *Server {
		server, err := New(dependencies(t, newStore()), Config{ShutdownDelay: -1})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	t.Run("stop before start", func(t *testing.T) {
		t.Parallel()
		server := fresh()
		stop(t, server)
		stop(t, server)
		<-server.Done()
		if err := server.Start(t.Context()); err == nil {
			t.Error("started after it was stopped")
		}
	})
	t.Run("many stops at once", func(t *testing.T) {
		t.Parallel()
		server := fresh()
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if server.Start(t.Context()) == nil {
			t.Error("started twice")
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { stop(t, server) })
		}
		all.Wait()
		if server.Err() != nil {
			t.Error(server.Err())
		}
	})
	t.Run("address taken", func(t *testing.T) {
		t.Parallel()
		first := fresh()
		if err := first.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		second, err := New(dependencies(t, newStore()), Config{Listen: first.Addr().String(), ShutdownDelay: -1})
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "listen") {
			t.Errorf("start on a taken address: %v", err)
		}
		stop(t, second)
		stop(t, first)
	})
	t.Run("listener fails", func(t *testing.T) {
		t.Parallel()
		server := fresh()
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = server.listener.Close()
		<-server.Done()
		if server.Err() == nil {
			t.Error("a server whose listener failed has no error")
		}
		stop(t, server)
	})
}

func TestConfigIsCheckedOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"public URL":      {PublicURL: "api.example.com"},
		"demo outside":    {Demo: &Demo{TenantID: "dev", Killer: killer(nil)}},
		"demo half":       {Dev: true, Demo: &Demo{}},
		"default handler": {Handlers: []string{"sfu"}},
	} {
		if _, err := New(dependencies(t, newStore()), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(Dependencies{}, Config{}); err == nil {
		t.Error("no dependencies: accepted")
	}
}

func TestReadinessIsBoundedAndAsksOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if a := r.call("GET", "/readyz", "", ""); a.status != 200 {
		t.Errorf("ready: %d", a.status)
	}
	r.store.frozen.Store(true)
	began := time.Now()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			response, err := r.client.Get(r.url + "/readyz")
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("frozen: %d", response.StatusCode)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took > 20*time.Second { // a second, on an idle machine
		t.Errorf("answered after %v", took)
	}
	if a := r.call("GET", "/livez", "", ""); a.status != 200 {
		t.Errorf("alive: %d", a.status)
	}
	r.store.frozen.Store(false)
	testkit.EventuallyTrue(t, 5*time.Second, "ready again by itself", func() bool { return r.call("GET", "/readyz", "", "").status == 200 })
}
