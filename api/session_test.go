package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

func TestPlacementSaysEverythingToConnect(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.PublicURL = "https://api.example.com/" })
	a := r.call("POST", "/v1/sessions", r.tenant, `{"id":"s-1","peer":{"id":"p-1","role":"viewer"}}`)
	if a.status != 201 || a.Header.Get("Location") != "https://api.example.com/v1/sessions/s-1" || a.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v %s", a.status, a.Header, a.body)
	}
	got := parse[wire.Placement](t, a)
	now := r.store.now
	rejoin, err := r.server.service.deps.RejoinTokens.Verify(got.RejoinToken)
	if err != nil || !cmp.Equal(rejoin, auth.RejoinToken{SessionKey: 1, PeerID: "p-1"}) {
		t.Errorf("rejoin token says %+v, %v", rejoin, err)
	}
	if got.Token == "" || len(got.IceServers) != 2 || got.IceServers[1].Credential == nil {
		t.Errorf("token %q, ice servers %+v", got.Token, got.IceServers)
	}
	got.Token, got.RejoinToken, got.IceServers = "", "", nil
	connectBy := now.Add(berth.ConnectWindow)
	want := wire.Placement{
		ID: "s-1", Kind: "media", State: "assigned", Generation: 101, Region: "local",
		Owner: wire.Owner{WorkerID: "w-1", SignalingURL: "ws://127.0.0.1:7880/rtc?session=s-1&x=1"}, Peer: wire.PeerName{ID: "p-1", Role: "viewer"},
		TokenExpiresAt: now.Truncate(time.Second).Add(auth.SessionTokenLife), RejoinURL: "https://api.example.com/v1/sessions/s-1/rejoin",
		CreatedAt: now, ConnectBy: &connectBy, ExpiresAt: now.Add(time.Hour),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("placement (-want +got):\n%s", diff)
	}
}

func TestRepeatedStartAnswersTheStoredPlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.place(`{"id":"same"}`)
	a := r.call("POST", "/v1/sessions", r.tenant, `{"id":"same","ttl_seconds":10}`)
	again := parse[wire.Placement](t, a)
	if a.status != 200 || again.Generation != first.Generation || !again.ExpiresAt.Equal(first.ExpiresAt) || a.Header.Get("Location") != "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if again.Peer != first.Peer || len(r.store.sessions[0].peers) != 1 {
		t.Errorf("peer %+v, want %+v again; the session has %+v", again.Peer, first.Peer, r.store.sessions[0].peers)
	}
	a = r.call("POST", "/v1/sessions", r.tenant, `{"id":"same","peer":{"id":"p-2","role":"viewer"}}`)
	if got := parse[wire.Placement](t, a).Peer; a.status != 200 || got != (wire.PeerName{ID: "p-2", Role: "viewer"}) {
		t.Errorf("a peer that is named: %d %s", a.status, a.body)
	}
}

func TestRefusalsForWantOfSlotsAreCountedAndSayWhenToReturn(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) {
		s.quota = 3
		s.workers = s.workers[:1]
		s.workers[0].Capacity = 4
	})
	for range 3 {
		r.place(`{}`)
	}
	a := r.call("POST", "/v1/sessions", r.tenant, `{}`)
	if p := a.problem(t); a.status != 429 || p.Code != "concurrent_sessions" || p.Retryable || a.Header.Get("Retry-After") != "" {
		t.Errorf("over quota: %d %v %s", a.status, a.Header, a.body)
	}
	if a := r.call("POST", "/v1/sessions", r.other, `{}`); a.status != 201 {
		t.Errorf("other tenant: %d", a.status)
	}
	a = r.call("POST", "/v1/sessions", r.other, `{}`) // checkAnswer looks at Retry-After
	if p := a.problem(t); a.status != 503 || p.Code != "at_capacity" || !p.Retryable {
		t.Errorf("full: %d %s", a.status, a.body)
	}
	if diff := cmp.Diff([]berth.Code{"concurrent_sessions", "at_capacity"}, r.store.refused); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestSessionIsReadWithItsPeersAndEndsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.place(`{"id":"s-1","peer":{"id":"p-1"},"region":"eu-north","handler":"play","metadata":{"a":[1,2]}}`)
	r.store.sessions[0].peers[0].ConnectedAt = r.store.now
	if a := r.call("POST", "/v1/sessions/s-1/peers", r.tenant, `{"id":"p-2","role":"viewer"}`); a.status != 201 {
		t.Errorf("second peer: %d %s", a.status, a.body)
	}
	if a := r.call("POST", "/v1/sessions/s-1/peers", r.tenant, `{"id":"p-2","role":"viewer"}`); a.status != 200 {
		t.Errorf("second peer again: %d %s", a.status, a.body)
	}
	if a := r.call("POST", "/v1/sessions/s-1/peers", r.tenant, ""); a.status != 201 || !strings.HasPrefix(parse[wire.Placement](t, a).Peer.ID, "p-") {
		t.Errorf("peer without a body: %d %s", a.status, a.body)
	}
	session := parse[wire.Session](t, r.call("GET", "/v1/sessions/s-1", r.tenant, ""))
	if session.Peers == nil || len(*session.Peers) != 3 || !(*session.Peers)[0].Connected || (*session.Peers)[1].Connected {
		t.Errorf("peers %+v", session.Peers)
	}
	if session.TenantID != nil || session.Owner == nil || session.Handler != "play" || string(session.Metadata) != `{"a":[1,2]}` || !session.Spilled {
		t.Errorf("session %+v", session)
	}
	for range 2 {
		if a := r.call("DELETE", "/v1/sessions/s-1", r.tenant, ""); a.status != 204 || len(a.body) != 0 {
			t.Errorf("DELETE: %d %s", a.status, a.body)
		}
	}
	session = parse[wire.Session](t, r.call("GET", "/v1/sessions/s-1", r.tenant, ""))
	if session.State != "ended" || session.EndedReason == nil || *session.EndedReason != "deleted" || session.Owner != nil {
		t.Errorf("ended session %+v", session)
	}
	if a := r.call("POST", "/v1/sessions/s-1/peers", r.tenant, `{}`); a.status != 410 {
		t.Errorf("peer of an ended session: %d", a.status)
	}
	if a := r.call("DELETE", "/v1/sessions/unknown", r.tenant, ""); a.status != 404 {
		t.Errorf("DELETE of none: %d", a.status)
	}
}

func TestListsPageThroughEverythingOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for i := range 7 {
		r.place(fmt.Sprintf(`{"id":"s-%d"}`, i))
	}
	r.call("POST", "/v1/sessions", r.other, `{"id":"theirs"}`)
	var seen []string
	for query := "?limit=3"; query != ""; {
		list := parse[wire.SessionList](t, r.call("GET", "/v1/sessions"+query, r.tenant, ""))
		for _, session := range list.Data {
			seen = append(seen, session.ID)
		}
		if query = ""; list.HasMore {
			query = "?limit=3&cursor=" + *list.NextCursor
		}
	}
	if got := strings.Join(seen, " "); got != "s-6 s-5 s-4 s-3 s-2 s-1 s-0" {
		t.Errorf("saw %s", got)
	}
	all := parse[wire.SessionList](t, r.call("GET", "/v1/sessions", r.operator, ""))
	if len(all.Data) != 8 || all.Data[0].TenantID == nil || *all.Data[0].TenantID != "t-2" || all.HasMore {
		t.Errorf("operator sees %+v", all)
	}
	if list := r.call("GET", "/v1/sessions?state=ended", r.tenant, ""); !strings.Contains(string(list.body), `"data":[]`) {
		t.Errorf("an empty list is %s", list.body)
	}
	first := parse[wire.WorkerList](t, r.call("GET", "/v1/workers?limit=1", r.operator, ""))
	second := parse[wire.WorkerList](t, r.call("GET", "/v1/workers?limit=1&cursor="+*first.NextCursor, r.operator, ""))
	if first.Data[0].ID != "w-1" || !first.HasMore || second.Data[0].ID != "w-2" || second.HasMore {
		t.Errorf("workers %+v, %+v", first, second)
	}
}

func TestQueriesAreCheckedAsStrictlyAsBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=%2B1": "limit", "limit=01": "limit", "limit=201": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=1.5": "limit", "limit=1&limit=2": "limit",
		"limit=99999999999999999999": "limit", "state=gone": "state", "state=": "state", "worker=a/b": "worker", "tenant=..": "tenant",
		"cursor=x": "cursor", "cursor=czEu": "cursor", "cursor=dzEudy0x": "cursor", "state=%zz": "query", "a;b": "query",
	} {
		r.refusedBy(r.call("GET", "/v1/sessions?"+query, r.operator, ""), query, field)
	}
}

func TestWorkersDrainAndUndrain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	drain := func(body string) wire.Worker {
		a := r.call("POST", "/v1/workers/w-1/drain", r.operator, body)
		if a.status != http.StatusOK {
			t.Fatalf("drain %s: %d %s", body, a.status, a.body)
		}
		return parse[wire.Worker](t, a)
	}
	first := drain("")
	if first.State != "draining" || first.Free != 0 || !first.DrainDeadline.Equal(r.store.now.Add(time.Hour)) {
		t.Errorf("drain without a body: %+v", first)
	}
	if second := drain(`{"deadline_seconds":1}`); !second.DrainDeadline.Equal(*first.DrainDeadline) {
		t.Error("the first deadline does not stand")
	}
	if third := drain(`{"deadline_seconds":86400,"override":true}`); !third.DrainDeadline.Equal(r.store.now.Add(24 * time.Hour)) {
		t.Errorf("override: %+v", third)
	}
	if a := r.call("DELETE", "/v1/workers/w-1/drain", r.operator, ""); a.status != 200 || parse[wire.Worker](t, a).State != "ready" {
		t.Errorf("undrain: %d %s", a.status, a.body)
	}
	for _, call := range []string{"GET /v1/workers/w-9", "POST /v1/workers/w-9/drain", "DELETE /v1/workers/w-9/drain"} {
		method, path, _ := strings.Cut(call, " ")
		if a := r.call(method, path, r.operator, ""); a.status != 404 {
			t.Errorf("%s: %d", call, a.status)
		}
		if a := r.call(method, strings.Replace(path, "w-9", "w%2F9", 1), r.operator, ""); a.status != 400 {
			t.Errorf("%s with a slash: %d", call, a.status)
		}
	}
}

func TestOnlyJSONIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for contentType, status := range map[string]int{
		"application/json": 201, "application/json; charset=utf-8": 201, "Application/JSON;charset=UTF-8": 201,
		"": 415, "text/plain": 415, "application/json; charset=utf-16": 415, "application/x-www-form-urlencoded": 415, "application/json;;": 415,
		"application/problem+json": 415,
	} {
		request := r.request("POST", "/v1/sessions", r.tenant, strings.NewReader(`{}`))
		request.Header.Set("Content-Type", contentType)
		if a := r.send(request); a.status != status {
			t.Errorf("%q: %d, want %d", contentType, a.status, status)
		}
	}
	request := r.request("POST", "/v1/sessions", r.tenant, strings.NewReader(`{}`))
	request.Header.Set("Content-Encoding", "gzip")
	if a := r.send(request); a.status != 415 {
		t.Errorf("gzip: %d", a.status)
	}
	request = r.request("POST", "/v1/sessions", r.tenant, strings.NewReader(`{}`))
	request.Header["Content-Type"] = []string{"application/json", "text/plain"}
	if a := r.send(request); a.status != 415 {
		t.Errorf("two content types: %d", a.status)
	}
	r.refusedBodyless()
}

// refusedBodyless checks calls that need a body and get none, also chunked.
func (r *rig) refusedBodyless() {
	r.t.Helper()
	before := r.store.calls.Load()
	for _, path := range []string{"/v1/sessions", "/v1/sessions/s/rejoin"} {
		request := r.request("POST", path, r.tenant, http.NoBody)
		if path != "/v1/sessions" {
			token, err := r.server.service.deps.RejoinTokens.Mint(auth.RejoinToken{SessionKey: 1, PeerID: "p"})
			if err != nil {
				r.t.Fatal(err)
			}
			r.store.sessions[0].ID = "s"
			request.Header.Set("Authorization", "Bearer "+token)
			before++ // the token's session is looked up first
		}
		a := r.send(request)
		if a.status != 400 || (*a.problem(r.t).Errors)[0].Field != "body" {
			r.t.Errorf("%s without a body: %d %s", path, a.status, a.body)
		}
	}
	if n := r.store.calls.Load() - before; n != 0 {
		r.t.Errorf("%d calls reached the store", n)
	}
}

func TestWorkerIsOrderedToShed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for body, want := range map[string]berth.ShedOrder{
		`{"count":100}`:                   {Count: 100, Spread: berth.ShedSpread},
		`{"count":7,"spread_seconds":60}`: {Count: 7, Spread: time.Minute},
	} {
		if a := r.call("POST", "/v1/workers/w-1/shed", r.operator, body); a.status != http.StatusOK || r.store.shed != want {
			t.Errorf("%s: got %d and %+v", body, a.status, r.store.shed)
		}
	}
	for _, body := range []string{`{}`, `{"count":0}`, `{"count":1000001}`, `{"count":1,"spread_seconds":0}`} {
		if a := r.call("POST", "/v1/workers/w-1/shed", r.operator, body); a.status != http.StatusBadRequest {
			t.Errorf("%s: got %d", body, a.status)
		}
	}
	if a := r.call("POST", "/v1/workers/unknown/shed", r.operator, `{"count":1}`); a.status != http.StatusNotFound {
		t.Errorf("got %d", a.status)
	}
}
