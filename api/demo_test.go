package api

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// killer is a Killer that tells the test whom it was to kill.
type killer func(workerID string) error

func (k killer) Kill(_ context.Context, workerID string) error { return k(workerID) }

func TestDemoCallsDoNotExistUnlessConfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, path := range []string{"/demo/sessions", "/demo/kill"} {
		if a := r.call("POST", path, "", `{}`); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

func TestDemoCallsAreForPagesOfThisMachineOnly(t *testing.T) {
	t.Parallel()
	var killed []string
	r := newRig(t, func(c *Config, _ *store) {
		c.Dev = true
		c.Demo = &Demo{TenantID: "dev", Killer: killer(func(id string) error {
			if id == "w-9" {
				return berth.Refuse(berth.CodeNotFound, "There is no such worker.")
			}
			killed = append(killed, id)
			return nil
		})}
	})
	_, port, _ := strings.Cut(strings.TrimPrefix(r.url, "http://"), ":")
	for name, tc := range map[string]struct {
		host, origin, site string
		status             int
	}{
		"the page":             {"127.0.0.1:" + port, "http://127.0.0.1:" + port, "same-origin", 201},
		"by name":              {"localhost:" + port, "http://localhost:" + port, "", 201},
		"by IPv6":              {"[::1]:" + port, "http://[::1]:" + port, "", 201},
		"no origin":            {"127.0.0.1:" + port, "", "", 403},
		"opaque origin":        {"127.0.0.1:" + port, "null", "", 403},
		"page elsewhere":       {"127.0.0.1:" + port, "https://evil.example.com", "cross-site", 403},
		"page of another port": {"127.0.0.1:" + port, "http://127.0.0.1:1", "", 403},
		"name made to resolve": {"evil.example.com:" + port, "http://evil.example.com:" + port, "same-origin", 403},
		"foreign host":         {"evil.example.com", "http://127.0.0.1:" + port, "", 403},
		"looks like loopback":  {"127.0.0.1.example.com", "http://127.0.0.1.example.com", "", 403},
	} {
		request := r.request("POST", "/demo/sessions", "", strings.NewReader(`{}`))
		request.Host = tc.host
		set(request.Header, "Origin", tc.origin)
		set(request.Header, "Sec-Fetch-Site", tc.site)
		if a := r.send(request); a.status != tc.status {
			t.Errorf("%s: %d, want %d: %s", name, a.status, tc.status, a.body)
		}
	}
	for body, status := range map[string]int{`{"worker_id":"w-1"}`: 204, `{"worker_id":"w-9"}`: 404, `{"worker_id":"../x"}`: 400, `{}`: 400} {
		request := r.request("POST", "/demo/kill", "", strings.NewReader(body))
		request.Header.Set("Origin", r.url)
		if a := r.send(request); a.status != status {
			t.Errorf("kill %s: %d, want %d", body, a.status, status)
		}
	}
	if len(killed) != 1 || killed[0] != "w-1" {
		t.Errorf("killed %q", killed)
	}
	list := parse[wire.SessionList](t, r.call("GET", "/v1/sessions?tenant=dev", r.operator, ""))
	if len(list.Data) != 3 {
		t.Errorf("the dev tenant has %d sessions, want 3", len(list.Data))
	}
}

func set(header http.Header, name, value string) {
	if value != "" {
		header.Set(name, value)
	}
}
