package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
	berthsdk "github.com/berthdev/berth/sdk/go"
)

// site is an API and one worker, w-1 with four slots, in this process.
type site struct {
	url              string
	tenant, operator string // keys
}

func newSite(t *testing.T) *site {
	t.Helper()
	database, logger := databases.Database(t), testkit.Logger(t)
	apiSettings := settings[config.API](t, "BERTH_DATABASE_URL="+database.URL, "BERTH_LISTEN=127.0.0.1:0", "BERTH_DEV=true")
	api, err := startAPI(t.Context(), apiSettings, nil, logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop the API: %v", err)
		}
	})
	workerSettings := settings[config.Worker](t, "BERTH_DATABASE_URL="+database.URL, "BERTH_WORKER_ID=w-1", "BERTH_WORKER_SLOTS=4", "BERTH_WORKER_LABELS=zone=b,gpu=a10",
		"BERTH_SIGNALING_LISTEN=127.0.0.1:0", "BERTH_CONTROL_LISTEN=127.0.0.1:0", "BERTH_MEDIA_LISTEN=127.0.0.1:0", "BERTH_DRAIN_DEADLINE=1s")
	worker, err := startWorker(t.Context(), workerSettings, logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stopped, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		if err := worker.wait(stopped); err != nil {
			t.Errorf("stop the worker: %v", err)
		}
	})
	s := &site{url: api.server.PublicURL()}
	s.makeKeys(t, api.store)
	return s
}

// settings are a process's, as its environment would give them.
func settings[P config.Process](t *testing.T, environment ...string) P {
	t.Helper()
	loaded, err := config.Load[P](environment)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func (s *site) makeKeys(t *testing.T, store *postgres.Store) {
	t.Helper()
	err := store.SetTenant(t.Context(), berth.Tenant{ID: "acme"})
	if err == nil {
		s.tenant, err = createKey(t.Context(), store, auth.RoleTenant, "acme")
	}
	if err == nil {
		s.operator, err = createKey(t.Context(), store, auth.RoleOperator, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *site) as(key string) shell { return shell{"BERTH_API_URL=" + s.url, "BERTH_API_KEY=" + key} }

func TestSessionCommandsReadAndEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	client, err := berthsdk.New(berthsdk.Config{URL: s.url, APIKey: s.tenant})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for _, id := range []string{"s-1", "s-2", "s-3"} {
		if _, err := client.CreateSession(t.Context(), berthsdk.CreateSession{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	tenant, operator := s.as(s.tenant), s.as(s.operator)

	rows := table(t, tenant.prints(t, "session", "list", "--limit", "2"))
	if len(rows) != 2 || rows[0]["ID"] != "s-3" || rows[0]["STATE"] != "assigned" || rows[0]["WORKER"] != "w-1" {
		t.Errorf("the newest two: %v", rows)
	}
	if rows := table(t, operator.prints(t, "session", "list", "--tenant", "acme", "--worker", "w-1")); len(rows) != 3 || rows[0]["TENANT"] != "acme" {
		t.Errorf("as operator: %v", rows)
	}
	shown := tenant.prints(t, "session", "show", "s-1")
	var session berthsdk.Session
	if err := json.Unmarshal([]byte(shown), &session); err != nil || session.ID != "s-1" || session.Owner == nil || strings.Contains(shown, "token") {
		t.Errorf("%v: %s", err, shown)
	}
	tenant.prints(t, "session", "end", "s-1")
	tenant.prints(t, "session", "end", "s-1") // it has ended already
	if rows := table(t, tenant.prints(t, "session", "list", "--state", "ended")); len(rows) != 1 || rows[0]["ID"] != "s-1" || rows[0]["WORKER"] != "-" {
		t.Errorf("ended: %v", rows)
	}

	tenant.refuses(t, 1, "not_found", "session", "show", "unknown")
	tenant.refuses(t, 1, "not_found", "session", "end", "unknown")
	tenant.refuses(t, 1, "id", "session", "show", "no/slash")
	tenant.refuses(t, 1, "state", "session", "list", "--state", "asleep")
	tenant.refuses(t, 2, "--limit", "session", "list", "--limit", "0")
	tenant.refuses(t, 2, "arg(s)", "session", "show")
	s.as("berth_tenant_unknown_SECRET").refuses(t, 1, "unauthenticated", "session", "list")
}

func TestWorkerCommandsListAndDrain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	operator := s.as(s.operator)
	state := func() map[string]string {
		t.Helper()
		rows := table(t, operator.prints(t, "worker", "list"))
		if len(rows) != 1 || rows[0]["ID"] != "w-1" || rows[0]["SLOTS"] != "4" || rows[0]["REGION"] != "default" {
			t.Fatalf("workers: %v", rows)
		}
		return rows[0]
	}
	if row := state(); row["STATE"] != "ready" || row["USED"] != "0" || row["CORDONED"] != "-" || row["LABELS"] != "gpu=a10,zone=b" {
		t.Errorf("before: %v", row)
	}
	if said := operator.prints(t, "worker", "drain", "w-1", "--deadline", "90m"); !strings.HasPrefix(said, "w-1 is draining: 0 of 4 slots used, sessions move by ") {
		t.Errorf("drain says %q", said)
	}
	if row := state(); row["STATE"] != "draining" {
		t.Errorf("during: %v", row)
	}
	if said := operator.prints(t, "worker", "undrain", "w-1"); said != "w-1 is ready: 0 of 4 slots used\n" {
		t.Errorf("undrain says %q", said)
	}
	if row := state(); row["STATE"] != "ready" {
		t.Errorf("after: %v", row)
	}

	operator.refuses(t, 1, "not_found", "worker", "drain", "unknown")
	operator.refuses(t, 1, "not_found", "worker", "undrain", "unknown")
	for _, deadline := range []string{"0", "0s", "-1s", "500ms", "25h"} {
		operator.refuses(t, 2, "--deadline", "worker", "drain", "w-1", "--deadline", deadline)
	}
	operator.refuses(t, 2, "--deadline", "worker", "drain", "w-1", "--deadline", "ninety")
	s.as(s.tenant).refuses(t, 1, "forbidden", "worker", "list")
}

func TestToolsSayWhichAPITheyMiss(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"session", "list"}, {"session", "show", "s-1"}, {"worker", "list"}, {"worker", "drain", "w-1"}} {
		shell{}.refuses(t, 2, "BERTH_API_URL", args...)
		shell{"BERTH_API_URL=http://127.0.0.1:1"}.refuses(t, 2, "BERTH_API_KEY", args...)
		shell{"BERTH_API_URL=127.0.0.1:1", "BERTH_API_KEY=hidden-word"}.refuses(t, 2, "BERTH_API_URL", args...)
	}
	r := shell{"BERTH_API_URL=http://127.0.0.1:1", "BERTH_API_KEY=hidden-word"}.berth(t, "session", "list")
	if r.code != 1 || !strings.Contains(r.stderr, "127.0.0.1:1") || strings.Contains(r.stderr, "hidden-word") {
		t.Errorf("without a server: exit code %d: %s", r.code, r.stderr)
	}
}

func TestHealthcheckTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-release
		case "/bad":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	defer close(release)
	sh := shell{}
	sh.prints(t, "healthcheck", server.URL+"/good")
	sh.refuses(t, 1, "503", "healthcheck", server.URL+"/bad")
	sh.refuses(t, 1, "refused", "healthcheck", "http://"+closedAddress(t)+"/livez")
	began := time.Now()
	sh.refuses(t, 1, "", "healthcheck", server.URL+"/slow")
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("gave up after %v", took)
	}
	for _, url := range []string{"nonsense", "127.0.0.1:1", "http://", "ftp://127.0.0.1/", "http://%zz/"} {
		sh.refuses(t, 2, "health URL", "healthcheck", url)
	}
	sh.refuses(t, 2, "arg(s)", "healthcheck")
}

// closedAddress is one that nobody listens on.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // only its address was wanted
	return listener.Addr().String()
}
