package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
)

func TestEachCallHasItsRoles(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.place(`{"id":"s-1"}`)
	const rejoin = `{"generation":1}`
	for _, tc := range []struct {
		method, path, body      string
		tenant, other, operator int
	}{
		{"POST", "/v1/sessions", `{"id":"new"}`, 201, 201, 403},
		{"GET", "/v1/sessions", "", 200, 200, 200},
		{"GET", "/v1/sessions?tenant=t-1", "", 200, 403, 200},
		{"GET", "/v1/sessions/s-1", "", 200, 404, 400},
		{"GET", "/v1/sessions/s-1?tenant=t-1", "", 200, 403, 200},
		{"GET", "/v1/sessions/s-1?tenant=t-2", "", 403, 404, 404},
		{"POST", "/v1/sessions/s-1/peers", `{}`, 201, 404, 403},
		{"POST", "/v1/sessions/s-1/rejoin", rejoin, 200, 404, 403},
		{"GET", "/v1/topics/a", "", 200, 200, 403},
		{"POST", "/v1/topics/a/messages", `{"data":1}`, 200, 200, 403},
		{"POST", "/v1/users/u/messages", `{"data":1}`, 200, 200, 403},
		{"GET", "/v1/workers", "", 403, 403, 200},
		{"GET", "/v1/workers/w-1", "", 403, 403, 200},
		{"POST", "/v1/workers/w-1/drain", `{}`, 403, 403, 200},
		{"DELETE", "/v1/workers/w-1/drain", "", 403, 403, 200},
		{"POST", "/v1/workers/w-1/shed", `{"count":1}`, 403, 403, 200},
		{"DELETE", "/v1/sessions/s-1?tenant=t-1", "", 204, 403, 204},
		{"DELETE", "/v1/sessions/s-1", "", 204, 404, 400},
	} {
		for key, status := range map[string]int{r.tenant: tc.tenant, r.other: tc.other, r.operator: tc.operator, "": 401, "wrong": 401, r.tenant + "x": 401} {
			a := r.call(tc.method, tc.path, key, tc.body)
			if a.status != status {
				t.Errorf("%s %s with key %.14s: %d, want %d: %s", tc.method, tc.path, key, a.status, status, a.body)
			}
			if status == 401 && !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s %s: no WWW-Authenticate", tc.method, tc.path)
			}
			if key != "" && strings.Contains(string(a.body), key) {
				t.Errorf("%s %s: the answer repeats the key", tc.method, tc.path)
			}
		}
	}
}

func TestKeyIsCheckedBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, path := range []string{"/v1/sessions/a%2Fb", "/v1/sessions?limit=x", "/v1/sessions?worker=%zz", "/v1/workers?cursor=!"} {
		if a := r.call("GET", path, "", ""); a.status != 401 {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
	if a := r.call("POST", "/v1/sessions", "", strings.Repeat("x", 2*maxBody)); a.status != 401 {
		t.Errorf("large body: %d", a.status)
	}
	for _, header := range []string{"Basic eDp5", "Bearer", "Bearer ", "bearer  x", r.tenant} {
		request := r.request("GET", "/v1/sessions", "", http.NoBody)
		request.Header.Set("Authorization", header)
		if a := r.send(request); a.status != 401 {
			t.Errorf("%q: %d", header, a.status)
		}
	}
}

func TestTwoKeysAreNoKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, second := range []string{"wrong", r.tenant} {
		request := r.request("GET", "/v1/sessions", r.tenant, http.NoBody)
		request.Header.Add("Authorization", "Bearer "+second)
		if a := r.send(request); a.status != 401 {
			t.Errorf("%d", a.status)
		}
	}
}

func TestStoreOfKeysAwayIsUnavailableNotUnauthenticated(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.store.setFail(errors.New("connection refused: select secret from api_keys"))
	a := r.call("GET", "/v1/sessions", r.tenant, "")
	if a.status != 503 || a.problem(t).Code != "unavailable" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestRejoinTakesThePeersTokenForItsSessionOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	placed := r.place(`{"id":"s-1","peer":{"id":"p-1"}}`)
	other := r.place(`{"id":"s-2"}`)
	const body = `{"generation":101}`
	a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, body)
	if got := parse[wire.Placement](t, a); a.status != 200 || got.Peer.ID != "p-1" || got.Generation != placed.Generation || got.Token == "" {
		t.Errorf("healthy owner: %d %s", a.status, a.body)
	}
	for name, tc := range map[string]struct {
		token  string
		status int
	}{
		"another session's": {other.RejoinToken, 403},
		"tampered":          {placed.RejoinToken[:len(placed.RejoinToken)-3] + "AAA", 401},
		"session token":     {placed.Token, 401},
	} {
		if a := r.call("POST", "/v1/sessions/s-1/rejoin", tc.token, body); a.status != tc.status {
			t.Errorf("%s token: %d, want %d", name, a.status, tc.status)
		}
	}
	if a := r.call("GET", "/v1/sessions/s-1", placed.RejoinToken, ""); a.status != 401 {
		t.Errorf("a rejoin token reads: %d", a.status)
	}
	r.call("DELETE", "/v1/sessions/s-1", r.tenant, "")
	if a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, body); a.status != 410 || a.problem(t).Retryable {
		t.Errorf("ended: %d", a.status)
	}
	gone, err := r.server.service.deps.RejoinTokens.Mint(auth.RejoinToken{SessionKey: 99, PeerID: "p-1"})
	if err != nil {
		t.Fatal(err)
	}
	if a := r.call("POST", "/v1/sessions/s-1/rejoin", gone, body); a.status != 410 {
		t.Errorf("row gone: %d", a.status)
	}
}
