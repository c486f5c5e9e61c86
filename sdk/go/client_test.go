package berth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

func readCloser(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		field  string
		config Config
	}{
		{"Config.URL", Config{URL: "api.example.com"}},
		{"Config.URL", Config{URL: "https://user:secret@api.example.com"}},
		{"Config.URL", Config{URL: "https://api.example.com?x=1"}},
		{"Config.URL", Config{URL: "http://[::1"}},
		{"Config.MaxRetryWait", Config{MaxRetryWait: -1}},
		{"Config.AttemptTimeout", Config{AttemptTimeout: -1}},
	} {
		_, err := New(test.config)
		if err == nil || !strings.Contains(err.Error(), test.field) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", test.field, err)
		}
	}
}

func TestCreateSessionSendsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL + "/prefix", APIKey: "key"})
	spill := false
	p, err := client.CreateSession(t.Context(), CreateSession{
		ID: "s-1", Kind: KindMedia, Handler: "play", Region: "eu", Spill: &spill, TTL: time.Minute, IdleTimeout: 5 * time.Second,
		Peer: Peer{ID: "p-1", Role: "viewer"}, OnWorkerLoss: LossEnd, Metadata: map[string]any{"customer": "c-42"},
	})
	if err != nil || p.ID != "s-1" || p.Generation != 7 {
		t.Fatalf("%+v, %v", p, err)
	}
	r := api.seen()[0]
	if r.method != "POST" || r.path != "/prefix/v1/sessions" || r.bearer != "Bearer key" {
		t.Errorf("request %+v", r)
	}
	for field, want := range map[string]any{
		"id": "s-1", "kind": "media", "handler": "play", "region": "eu", "spill": false, "ttl_seconds": 60.0,
		"idle_timeout_seconds": 5.0, "on_worker_loss": "end",
	} {
		if r.body[field] != want {
			t.Errorf("%s is %v, want %v", field, r.body[field], want)
		}
	}
}

func TestWrongArgumentsAreRefusedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(200, nil))
	client, _ := testClient(t, Config{URL: api.URL})
	ctx := t.Context()
	create := func(s CreateSession) error {
		_, err := client.CreateSession(ctx, s)
		return err
	}
	_, session := client.Session(ctx, "..")
	_, peer := client.AddPeer(ctx, "s-1", Peer{ID: "a/b"})
	_, worker := client.Worker(ctx, "")
	_, drain := client.DrainWorker(ctx, "w-1", DrainWorker{Deadline: time.Millisecond})
	_, generation := client.Rejoin(ctx, RejoinRequest{ID: "s-1"})
	_, foreign := client.Rejoin(ctx, RejoinRequest{URL: "https://elsewhere.example.com/x", Generation: 1})
	for _, test := range []struct {
		field string
		err   error
	}{
		{"id", create(CreateSession{ID: "a b"})},
		{"peer.id", create(CreateSession{Peer: Peer{ID: "é"}})},
		{"ttl_seconds", create(CreateSession{TTL: 1500 * time.Millisecond})},
		{"idle_timeout_seconds", create(CreateSession{IdleTimeout: -time.Second})},
		{"id", session},
		{"peer.id", peer},
		{"id", worker},
		{"deadline_seconds", drain},
		{"generation", generation},
		{"token", foreign},
		{"id", client.EndSession(ctx, strings.Repeat("a", 129))},
	} {
		var e *Error
		if !errors.As(test.err, &e) || e.Code != CodeInvalidArgument || e.Fields[0].Field != test.field {
			t.Errorf("%s: %v", test.field, test.err)
		}
	}
	if n := len(api.seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestSessionsFetchesPagesAsNeeded(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t,
		answerJSON(200, map[string]any{"data": []Session{{ID: "a"}, {ID: "b"}}, "has_more": true, "next_cursor": "c1"}),
		answerJSON(200, map[string]any{"data": []Session{{ID: "c"}}, "has_more": false}),
	)
	client, _ := testClient(t, Config{URL: api.URL})
	var ids []string
	for s, err := range client.Sessions(t.Context(), SessionFilter{State: "active", PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	if got := strings.Join(ids, ""); got != "abc" {
		t.Errorf("got %q", got)
	}
	seen := api.seen()
	if len(seen) != 2 || seen[0].query != "limit=2&state=active" || seen[1].query != "cursor=c1&limit=2&state=active" {
		t.Errorf("requests %+v", seen)
	}
}

func TestSessionsEndsWithTheError(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, refuse(401, CodeUnauthenticated))
	client, _ := testClient(t, Config{URL: api.URL})
	n := 0
	for s, err := range client.Sessions(t.Context(), SessionFilter{}) {
		n++
		if s != nil || ErrorCode(err) != CodeUnauthenticated {
			t.Errorf("%v, %v", s, err)
		}
	}
	if n != 1 {
		t.Errorf("%d pairs", n)
	}
}

func TestOperatorCalls(t *testing.T) {
	t.Parallel()
	worker := Worker{ID: "w-1", Capacity: 8, State: "draining"}
	api := newFakeAPI(t,
		answerJSON(200, map[string]any{"data": []Worker{worker}, "has_more": false}),
		answerJSON(200, worker))
	client, _ := testClient(t, Config{URL: api.URL})
	for w, err := range client.Workers(t.Context()) {
		if err != nil || w.Capacity != 8 {
			t.Errorf("%+v, %v", w, err)
		}
	}
	for name, call := range map[string]func() (*Worker, error){
		"show": func() (*Worker, error) { return client.Worker(t.Context(), "w-1") },
		"drain": func() (*Worker, error) {
			return client.DrainWorker(t.Context(), "w-1", DrainWorker{Deadline: time.Minute})
		},
		"undrain": func() (*Worker, error) { return client.UndrainWorker(t.Context(), "w-1") },
	} {
		if w, err := call(); err != nil || w.ID != "w-1" {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
	if err := client.EndSession(t.Context(), "s-1"); err != nil {
		t.Error(err)
	}
}

func TestErrorsCarryWhatTheAPISaid(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"code":"invalid_argument","detail":"Not valid.","request_id":"req-9","retryable":false,
			"errors":[{"field":"region","reason":"no such region"}]}`)
	})
	client, _ := testClient(t, Config{URL: api.URL})
	_, err := client.CreateSession(t.Context(), CreateSession{})
	var e *Error
	if !errors.As(err, &e) || e.Status != 400 || e.Code != CodeInvalidArgument || e.RequestID != "req-9" || e.Retryable {
		t.Fatalf("%+v", err)
	}
	if want := "berth: invalid_argument (400): region: no such region [request req-9]"; err.Error() != want {
		t.Errorf("%s", err)
	}
	if IsNotFound(err) || IsEnded(err) || IsAtCapacity(err) || IsConcurrentSessions(err) || IsRetryable(err) {
		t.Error("a predicate is wrong")
	}
}

func TestAnUnreachableAPIIsRetried(t *testing.T) {
	t.Parallel()
	attempts := 0
	broken := roundTrip(func(*http.Request) (*http.Response, error) {
		attempts++
		return nil, errors.New("connection refused")
	})
	client, naps := testClient(t, Config{URL: "http://api", HTTPClient: &http.Client{Transport: broken}})
	_, err := client.Session(t.Context(), "s-1")
	if !IsRetryable(err) || attempts != 3 || len(naps.all()) != 2 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

func TestACanceledCallIsNotRetried(t *testing.T) {
	t.Parallel()
	attempts := 0
	ctx, cancel := context.WithCancel(t.Context())
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		attempts++
		cancel()
		return nil, r.Context().Err()
	})
	client, _ := testClient(t, Config{URL: "http://api", HTTPClient: &http.Client{Transport: transport}})
	_, err := client.Session(ctx, "s-1")
	if !errors.Is(err, context.Canceled) || attempts != 1 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

func TestNegativeMaxRetriesMeansNone(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, refuse(503, CodeUnavailable))
	client, _ := testClient(t, Config{URL: api.URL, MaxRetries: -1})
	_, err := client.Session(t.Context(), "s-1")
	if ErrorCode(err) != CodeUnavailable || len(api.seen()) != 1 {
		t.Errorf("%d attempts, %v", len(api.seen()), err)
	}
}

func TestSecretsStayOutOfLogs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := Placement{ID: "s-1", Token: "secret1", RejoinToken: "secret2", ICEServers: []ICEServer{{Credential: "secret3"}}}
	slog.New(slog.NewJSONHandler(&out, nil)).InfoContext(t.Context(), "x", "placement", p, "ice", p.ICEServers[0])
	if strings.Contains(out.String(), "secret") || !strings.Contains(out.String(), "s-1") {
		t.Error(out.String())
	}
}

func TestRandomIDsAreValidAndDiffer(t *testing.T) {
	t.Parallel()
	a, b := newID("s"), newID("s")
	if a == b || checkID("id", a) != nil {
		t.Errorf("%s, %s", a, b)
	}
}

func TestAnOperatorNamesTheTenantWhoseSessionItMeans(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(200, Session{ID: "s-1"}), answerJSON(204, nil))
	client, _ := testClient(t, Config{URL: api.URL, Tenant: "acme"})
	if _, err := client.Session(t.Context(), "s-1"); err != nil {
		t.Fatal(err)
	}
	if err := client.EndSession(t.Context(), "s-1"); err != nil {
		t.Fatal(err)
	}
	for _, r := range api.seen() {
		if r.path != "/v1/sessions/s-1" || r.query != "tenant=acme" {
			t.Errorf("%s %s?%s does not name the tenant", r.method, r.path, r.query)
		}
	}
}

func TestCreateSessionLeavesThePeerToTheAPIUnlessOneIsNamed(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, anyPlacement), answerJSON(201, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL})
	for _, session := range []CreateSession{{ID: "a"}, {ID: "b", Peer: Peer{ID: "me"}}} {
		if _, err := client.CreateSession(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	seen := api.seen()
	if _, named := seen[0].body["peer"]; named {
		t.Errorf("a peer that nobody named was sent: %v", seen[0].body)
	}
	if _, named := seen[1].body["peer"]; !named {
		t.Errorf("the named peer was not sent: %v", seen[1].body)
	}
}

func TestRejoinByKeySaysWhatThePeerMayUse(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(200, anyPlacement), answerJSON(200, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL})
	for _, peer := range []*RejoinPeer{nil, {User: "ann", Topics: &TopicGrant{Subscribe: []string{"a"}}}} {
		if _, err := client.Rejoin(t.Context(), RejoinRequest{ID: "s-1", Generation: 1, Peer: peer}); err != nil {
			t.Fatal(err)
		}
	}
	seen := api.seen()
	if _, named := seen[0].body["peer"]; named {
		t.Errorf("a peer that nobody named was sent: %v", seen[0].body)
	}
	if said, _ := json.Marshal(seen[1].body["peer"]); string(said) != `{"topics":{"subscribe":["a"]},"user":"ann"}` {
		t.Errorf("said of the peer: %s", said)
	}
}
