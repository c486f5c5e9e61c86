package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

// startWith places with fields in the header; each value is a field of its own.
func (r *rig) startWith(body string, fields ...string) reply {
	r.t.Helper()
	request := r.request(http.MethodPost, "/v1/sessions", r.tenant, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		request.Header.Add(fields[i], fields[i+1])
	}
	return r.send(request)
}

// started is the last start that reached the store.
func (s *store) started() berth.Start {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[len(s.starts)-1]
}

func TestStartSaysHowItIsPlaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.place(`{}`)
	plain := r.store.started()
	if plain.Slots != 1 || plain.Strategy != "" || plain.Selector != nil || plain.IDChosen || plain.Wait != 0 || plain.IdempotencyKey != "" {
		t.Errorf("defaults: %+v", plain)
	}
	r.place(`{"id":"s-1","slots":64,"strategy":"pack","selector":{"gpu":"a100","example.com/zone":"eu-1b"}}`)
	said := r.store.started()
	if said.Slots != 64 || said.Strategy != berth.StrategyPack || !said.IDChosen {
		t.Errorf("said: %+v", said)
	}
	labels := map[string]string{"gpu": "a100", "example.com/zone": "eu-1b"}
	if diff := cmp.Diff(labels, said.Selector); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	session := parse[wire.Session](t, r.call("GET", "/v1/sessions/s-1", r.tenant, ""))
	if session.Slots != 64 || session.Strategy == nil || *session.Strategy != "pack" || session.Selector == nil || (*session.Selector)["gpu"] != "a100" {
		t.Errorf("read back: %+v", session)
	}
	r.place(`{"selector":{}}`)
	if got := r.store.started().Selector; got != nil {
		t.Errorf("an empty selector became %v", got)
	}
}

func TestScenario_V10_SlotsStrategyAndSelectorAreExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for body, field := range map[string]string{
		`{"strategy":""}`: "strategy", `{"strategy":"Spread"}`: "strategy", `{"strategy":1}`: "strategy",
		`{"selector":[]}`: "selector", `{"selector":"gpu"}`: "selector", `{"selector":{"gpu":1}}`: "selector.gpu",
		`{"selector":{"gpu":["a"]}}`: "selector.gpu", `{"selector":{"gpu":""}}`: "selector.gpu", `{"selector":{"gpu":"a b"}}`: "selector.gpu",
		`{"selector":{"gpu":"-a"}}`: "selector.gpu", `{"selector":{"-gpu":"a"}}`: "selector.-gpu", `{"selector":{"":"a"}}`: "selector.?",
		`{"selector":{"a b":"a"}}`: "selector.?", `{"selector":{"é":"a"}}`: "selector.?", `{"selector":{"x.io/gpu":" "}}`: "selector.x.io/gpu",
		`{"selector":{"gpu":"` + strings.Repeat("a", 64) + `"}}`:     "selector.gpu",
		`{"selector":{"` + strings.Repeat("a", 64) + `":"a"}}`:       "selector." + strings.Repeat("a", 64),
		`{"selector":{` + numbered(berth.MaxSelectorLabels+1) + `}}`: "selector",
	} {
		r.refused(body, field)
	}
	r.place(`{"selector":{` + numbered(berth.MaxSelectorLabels) + `}}`)
}

// numbered are so many labels, as members.
func numbered(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"l%d":"v"`, i)
	}
	return strings.Join(members, ",")
}

func TestPreferredWaitIsReadAsRFC7240Says(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]int{
		"wait=10": 10, "wait=0": 0, "wait=30": 30, "Wait=5": 5, `wait="10"`: 10, "wait = 10": 10, "\twait=7 ": 7, "wait=10; x=y": 10,
		"respond-async, wait=10": 10, "wait=10, respond-async": 10, "wait=3,wait=9": 3, "wait=3, wait=x": 3, `foo="a, wait=9", wait=4`: 4,
		`foo="\"", wait=4`: 4, "foo; wait=9, wait=4": 4, ", ,wait=2,": 2, "respond-async": 0, "": 0, "waiting=9": 0, `return=minimal; foo="some parameter"`: 0,
	} {
		if got, ok := preferredWait(http.Header{"Prefer": {field}}); !ok || got != time.Duration(want)*time.Second {
			t.Errorf("%q: %v, %v, want %d s", field, got, ok, want)
		}
	}
	if got, ok := preferredWait(http.Header{"Prefer": {"respond-async", "wait=8"}}); !ok || got != 8*time.Second {
		t.Errorf("two fields: %v, %v", got, ok)
	}
}

func TestScenario_V10_WaitIsExactAndNeverClamped(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, field := range []string{
		"wait", "wait=", `wait=""`, "wait=31", "wait=-1", "wait=+1", "wait=1.5", "wait=1e1", "wait=010", "wait=999999999999999999999", "wait=ten",
		"wait=10 20", "=10", ";", "wait=10;;=", `wait="10`, "wait=10 respond-async", "é=1, wait=1",
	} {
		r.refusedBy(r.startWith(`{}`, "Prefer", field), field, "Prefer")
	}
	a := r.startWith(`{}`, "Prefer", "respond-async", "Prefer", "wait=30")
	if a.status != 201 || a.Header.Get("Preference-Applied") != "wait=30" || r.store.started().Wait != 30*time.Second {
		t.Errorf("%d, applied %q, waits %v", a.status, a.Header.Get("Preference-Applied"), r.store.started().Wait)
	}
	if a := r.startWith(`{}`, "Prefer", "respond-async"); a.status != 201 || a.Header.Get("Preference-Applied") != "" {
		t.Errorf("no wait: %d, applied %q", a.status, a.Header.Get("Preference-Applied"))
	}
}

func TestPreferencesNeverConfuseTheParser(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{"wait", "=", "10", "31", ",", ";", " ", "\t", `"`, `\`, "foo", "é", "\x00", "respond-async"})
	rapid.Check(t, func(rt *rapid.T) {
		field := strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(rt, "pieces"), "")
		if wait, ok := preferredWait(http.Header{"Prefer": {field}}); wait < 0 || wait > berth.MaxWait || !ok && wait != 0 {
			rt.Fatalf("%q: %v, %v", field, wait, ok)
		}
	})
}

func TestWaitingStartOutlivesTheRequestTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, s *store) {
		c.RequestTimeout = 50 * time.Millisecond
		s.block = make(chan struct{})
	})
	if a := r.startWith(`{}`); a.status != 503 || a.problem(t).Code != "unavailable" {
		t.Errorf("without a wait: %d %s", a.status, a.body)
	}
	<-r.store.entered
	answered := make(chan reply, 1)
	go func() { answered <- r.startWith(`{}`, "Prefer", "wait=30") }()
	<-r.store.entered
	select {
	case a := <-answered:
		t.Errorf("answered %d before there was room", a.status)
	case <-time.After(4 * 50 * time.Millisecond):
	}
	close(r.store.block)
	if a := <-answered; a.status != 201 || a.Header.Get("Preference-Applied") != "wait=30" {
		t.Errorf("%d %v", a.status, a.Header)
	}
}

func TestWaitingStartLeavesTheQueueWhenTheServerStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) { s.block = make(chan struct{}) })
	answered := make(chan reply, 1)
	go func() { answered <- r.startWith(`{}`, "Prefer", "wait=30") }()
	<-r.store.entered
	stop(t, r.server)
	a := <-answered // checkAnswer looks at Retry-After
	if a.status != 503 || a.problem(t).Code != "unavailable" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestIdempotencyKeysAreBareOrQuoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	long := strings.Repeat("k", berth.MaxIdempotencyKey)
	for field, want := range map[string]string{
		"abc": "abc", `"abc"`: "abc", `"a\"b\\c"`: `a"b\c`, `a\b`: `a\b`, "a,b;c=d": "a,b;c=d", long: long, `"` + long + `"`: long, `a"b`: `a"b`,
	} {
		if a := r.startWith(`{}`, "Idempotency-Key", field); a.status != 201 && a.status != 422 {
			t.Errorf("%.40q: %d %s", field, a.status, a.body)
		}
		if got := r.store.started().IdempotencyKey; got != want {
			t.Errorf("%.40q became %.40q", field, got)
		}
	}
	r = newRig(t, nil)
	for _, field := range []string{"", `""`, `"`, `"abc`, `"a"b"`, `"a\b"`, `"a\"`, "a b", `"a b"`, "a\tb", "é", "\"\xff\"", `"abc";p=1`, long + "k", `"` + long + `k"`} {
		r.refusedBy(r.startWith(`{}`, "Idempotency-Key", field), field, "Idempotency-Key")
	}
	r.refusedBy(r.startWith(`{}`, "Idempotency-Key", "a", "Idempotency-Key", "a"), "two", "Idempotency-Key")
}

func TestIdempotencyKeyRepeatsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.startWith(`{"metadata":{"a":1,"b":"\u00e9"},"slots":2}`, "Idempotency-Key", `"k-1"`)
	again := r.startWith(" {\"slots\": 2,\n\"metadata\":{\"b\":\"é\", \"a\": 1}}", "Idempotency-Key", "k-1")
	one, two := parse[wire.Placement](t, first), parse[wire.Placement](t, again)
	if first.status != 201 || first.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("first: %d, replayed %q", first.status, first.Header.Get("Idempotent-Replayed"))
	}
	if again.status != 201 || again.Header.Get("Idempotent-Replayed") != "true" || one.ID != two.ID || one.Generation != two.Generation ||
		again.Header.Get("Location") != first.Header.Get("Location") || first.Header.Get("Location") == "" {
		t.Errorf("again: %d %v %s", again.status, again.Header, again.body)
	}
	for _, other := range []string{`{}`, `{"metadata":{"a":1,"b":"é"},"slots":1}`, `{"metadata":{"a":1.0,"b":"é"},"slots":2}`} {
		if a := r.startWith(other, "Idempotency-Key", "k-1"); a.status != 422 || a.problem(t).Code != "idempotency_mismatch" || a.problem(t).Retryable {
			t.Errorf("%s: %d %s", other, a.status, a.body)
		}
	}
	if a := r.call("DELETE", "/v1/sessions/"+one.ID, r.tenant, ""); a.status != 204 {
		t.Fatal(a.status)
	}
	if a := r.startWith(`{"metadata":{"a":1,"b":"é"},"slots":2}`, "Idempotency-Key", "k-1"); a.status != 410 {
		t.Errorf("after its session ended: %d %s", a.status, a.body)
	}
}

func TestBodyHashTellsWhatIsSaidAndNotHow(t *testing.T) {
	t.Parallel()
	hash := func(body string) [sha256.Size]byte {
		h, err := bodyHash([]byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return h
	}
	same := []string{`{"a":{"x":1,"y":[1,2]},"b":"<\u00e9"}`, ` { "b" : "\u003cé", "a" : { "y" : [ 1, 2 ], "x" : 1 } } `}
	if hash(same[0]) != hash(same[1]) {
		t.Error("the same said otherwise is another body")
	}
	seen := map[[sha256.Size]byte]string{}
	for _, body := range []string{
		`{}`, `{"a":1}`, `{"a":"1"}`, `{"a":[1,2]}`, `{"a":[2,1]}`, `{"a":12345678901234567890}`, `{"a":12345678901234567891}`, `{"a":1e400}`, `{"a":1e401}`,
	} {
		if other, twice := seen[hash(body)]; twice {
			t.Errorf("%s is %s", body, other)
		}
		seen[hash(body)] = body
	}
}

func TestRequestInFlightIsAConflictThatPasses(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) {
		s.refusal = &berth.Refusal{Code: berth.CodeConflict, Detail: "In flight.", RetryAfter: time.Second, Retryable: true}
	})
	a := r.startWith(`{}`, "Idempotency-Key", "k")
	if a.status != 409 || !a.problem(t).Retryable || a.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.Header, a.body)
	}
	if len(r.store.refused) != 0 {
		t.Errorf("counted as %v", r.store.refused)
	}
}

func TestStartAnswersTellTheQuotas(t *testing.T) {
	t.Parallel()
	refused := berth.Refuse(berth.CodeConcurrentSessions, "")
	for name, tc := range map[string]struct {
		limits        berth.Limits
		err           error
		policy, limit string
	}{
		"none":                {berth.Limits{Live: 3}, nil, "", ""},
		"sessions":            {berth.Limits{MaxConcurrent: new(5), Live: 3}, nil, `"concurrent_sessions";q=5`, `"concurrent_sessions";r=2`},
		"over":                {berth.Limits{MaxConcurrent: new(0), Live: 3}, refused, `"concurrent_sessions";q=0`, `"concurrent_sessions";r=0`},
		"rate, full":          {berth.Limits{StartRate: 2, StartBurst: 10, Tokens: 10}, nil, `"starts";q=10;w=5`, `"starts";r=10`},
		"rate, some":          {berth.Limits{StartRate: 0.1, StartBurst: 10, Tokens: 3.5}, nil, `"starts";q=10;w=100`, `"starts";r=3;t=5`},
		"rate, none":          {berth.Limits{StartRate: 0.1, StartBurst: 10, Tokens: 0.25}, refused, `"starts";q=10;w=100`, `"starts";r=0;t=8`},
		"rate, debt":          {berth.Limits{StartRate: 1, StartBurst: 1, Tokens: -1}, refused, `"starts";q=1;w=1`, `"starts";r=0;t=2`},
		"rate, some, refused": {berth.Limits{StartRate: 0.1, StartBurst: 10, Tokens: 3.5}, refused, `"starts";q=10;w=100`, `"starts";r=3`},
		"slow":                {berth.Limits{StartRate: 1e-300, StartBurst: 1, Tokens: 0}, refused, `"starts";q=1;w=999999999999999`, `"starts";r=0;t=999999999999999`},
		"both": {
			berth.Limits{MaxConcurrent: new(5), Live: 5, StartRate: 3, StartBurst: 10, Tokens: 0},
			nil,
			`"concurrent_sessions";q=5, "starts";q=10;w=4`, `"concurrent_sessions";r=0, "starts";r=0;t=1`,
		},
	} {
		header := http.Header{}
		tellQuotas(header, tc.limits, tc.err)
		if header.Get("RateLimit-Policy") != tc.policy || header.Get("RateLimit") != tc.limit {
			t.Errorf("%s: %q and %q, want %q and %q", name, header.Get("RateLimit-Policy"), header.Get("RateLimit"), tc.policy, tc.limit)
		}
	}
}

func TestQuotasAreToldOnEveryAnswerToAStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) {
		s.limits = berth.Limits{MaxConcurrent: new(5), Live: 1, StartRate: 0.01, StartBurst: 2, Tokens: 0.5}
	})
	told := func(name string, a reply, status int, code wire.Code, atLeast int) {
		t.Helper()
		if a.status != status || a.Header.Get("RateLimit") == "" || a.Header.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: %d %v", name, a.status, a.Header)
		}
		if status >= 400 && a.problem(t).Code != code {
			t.Errorf("%s: %s", name, a.body)
		}
		var seconds int
		if _, err := fmt.Sscan(a.Header.Get("Retry-After"), &seconds); atLeast > 0 && (err != nil || seconds < atLeast) {
			t.Errorf("%s: Retry-After %q, want %d or more", name, a.Header.Get("Retry-After"), atLeast)
		}
	}
	told("placed", r.startWith(`{"id":"s"}`), 201, "", 0)
	told("stored", r.startWith(`{"id":"s"}`), 200, "", 0)
	r.store.refusal = &berth.Refusal{Code: berth.CodeStartRateLimited, RetryAfter: 50 * time.Second, Retryable: true}
	told("rate", r.startWith(`{}`), 429, "session_start_rate_limited", 50)
	r.store.refusal = &berth.Refusal{Code: berth.CodeStartRateLimited, Retryable: true}
	told("rate without a time", r.startWith(`{}`), 429, "session_start_rate_limited", 50)
	r.store.refusal = berth.Refuse(berth.CodeConcurrentSessions, "")
	told("quota", r.startWith(`{}`), 429, "concurrent_sessions", 0)
	r.store.refusal = &berth.Refusal{Code: berth.CodeAtCapacity, RetryAfter: 2 * time.Second, Retryable: true}
	told("full, and no start left", r.startWith(`{}`, "Prefer", "wait=1"), 503, "at_capacity", 50)
	want := []berth.Code{"session_start_rate_limited", "session_start_rate_limited", "concurrent_sessions", "at_capacity"}
	if diff := cmp.Diff(want, r.store.refused); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestRefusedRejoinIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	placed := r.place(`{"id":"s-1"}`)
	for i := range r.store.workers {
		r.store.workers[i].Capacity = 0
	}
	a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, fmt.Sprintf(`{"generation":%d,"lost":true}`, placed.Generation))
	if a.status != 503 || len(r.store.refused) != 1 || r.store.refused[0] != berth.CodeAtCapacity {
		t.Errorf("%d %s, counted %v", a.status, a.body, r.store.refused)
	}
}

func TestCallerWhoLeavesTheQueueIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *Config, s *store) { s.block = make(chan struct{}) })
	ctx, cancel := context.WithCancel(t.Context())
	request := r.request("POST", "/v1/sessions", r.tenant, strings.NewReader(`{}`)).WithContext(ctx)
	request.Header.Set("Prefer", "wait=30")
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
	if err := <-answered; err == nil {
		t.Error("answered")
	}
	held := &r.server.service.held
	testkit.EventuallyTrue(t, 5*time.Second, "the start is not held any more", func() bool {
		held.mu.Lock()
		defer held.mu.Unlock()
		return len(held.ends) == 0
	})
	if len(r.store.starts) != 0 {
		t.Error("placed")
	}
}

func TestStartsOfCallsTakeNothingOfAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	wrong := r.call("POST", "/v1/sessions", r.tenant,
		`{"id":"c","kind":"call","peer":{"role":"bass"},"slots":2,"strategy":"pack","handler":"echo","on_worker_loss":"end"}`)
	var fields []string
	for _, e := range *wrong.problem(t).Errors {
		fields = append(fields, e.Field)
	}
	slices.Sort(fields)
	if want := []string{"handler", "on_worker_loss", "peer.role", "slots", "strategy"}; !slices.Equal(fields, want) {
		t.Errorf("named %q, want %q", fields, want)
	}
	if a := r.call("POST", "/v1/sessions", r.tenant, `{"id":"c","kind":"call","peer":{"id":"p","role":"answer"}}`); a.status != 201 {
		t.Errorf("got %d %s", a.status, a.body)
	}
}
