package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/testkit"
)

func TestRejoinAfterALossIsANewPlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	placed := r.place(`{"id":"s-1"}`)
	a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, `{"generation":101,"lost":true}`)
	if got := parse[wire.Placement](t, a); a.status != 200 || got.Generation <= placed.Generation || got.Owner.WorkerID == placed.Owner.WorkerID {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, body := range []string{`{}`, `{"generation":0}`, `{"generation":"1"}`, `{"generation":1,"lost":1}`, `{"generation":1,"peer":"x"}`} {
		if a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, body); a.status != 400 {
			t.Errorf("%s: %d", body, a.status)
		}
	}
}

func TestRejoinIsHeldWhileTheOwnerIsInQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	placed := r.place(`{"id":"s-1"}`)
	r.store.hold.Store(true)
	answered := make(chan reply, 1)
	go func() {
		answered <- r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, `{"generation":101,"lost":true}`)
	}()
	testkit.EventuallyTrue(t, 5*time.Second, "the reaper is woken again and again", func() bool { return r.store.wakes.Load() >= 3 })
	select {
	case a := <-answered:
		t.Fatalf("answered early: %d", a.status)
	default:
	}
	r.store.hold.Store(false)
	if a := <-answered; a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestHeldRejoinIsRefusedAtItsLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, s *store) { c.RejoinHold = 250 * time.Millisecond })
	placed := r.place(`{"id":"s-1"}`)
	r.store.hold.Store(true)
	a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, `{"generation":101}`)
	if a.status != 503 || a.problem(t).Code != "unavailable" || !a.problem(t).Retryable {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestRejoinIsOpenToPagesOfTheAllowedOrigins(t *testing.T) {
	t.Parallel()
	const allowed = "https://app.example.com"
	r := newRig(t, func(c *Config, _ *store) { c.AllowedOrigins = []string{allowed} })
	dev := newRig(t, func(c *Config, _ *store) { c.Dev = true })
	for _, tc := range []struct {
		rig    *rig
		origin string
		ok     bool
	}{
		{r, allowed, true},
		{r, "https://app.example.com:444", false},
		{r, "http://app.example.com", false},
		{r, "https://app.example.com.evil.com", false},
		{r, "http://localhost:3000", false},
		{r, "null", false},
		{dev, "http://localhost:3000", true},
		{dev, "http://127.0.0.1:3000", true},
		{dev, "http://[::1]:3000", true},
		{dev, "http://localhost.evil.com", false},
		{dev, "file://localhost", false},
	} {
		placed := tc.rig.place(`{}`)
		path := "/v1/sessions/" + placed.ID + "/rejoin"
		preflight := tc.rig.request("OPTIONS", path, "", http.NoBody)
		preflight.Header.Set("Origin", tc.origin)
		preflight.Header.Set("Access-Control-Request-Method", "POST")
		a := tc.rig.send(preflight)
		if want := map[bool]int{true: 204, false: 403}[tc.ok]; a.status != want || (a.Header.Get("Access-Control-Allow-Origin") == tc.origin) != tc.ok {
			t.Errorf("preflight from %s: %d %v", tc.origin, a.status, a.Header)
		}
		request := tc.rig.request("POST", path, placed.RejoinToken, strings.NewReader(`{"generation":1}`))
		request.Header.Set("Origin", tc.origin)
		a = tc.rig.send(request)
		if a.status != 200 || (a.Header.Get("Access-Control-Allow-Origin") == tc.origin) != tc.ok || a.Header.Get("Vary") != "Origin" {
			t.Errorf("rejoin from %s: %d %v", tc.origin, a.status, a.Header)
		}
		other := tc.rig.request("GET", "/v1/sessions", tc.rig.tenant, http.NoBody)
		other.Header.Set("Origin", tc.origin)
		if a := tc.rig.send(other); a.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("other calls are open to %s", tc.origin)
		}
	}
}
