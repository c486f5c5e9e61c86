package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	spec "github.com/berthdev/berth"
	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/testkit"
)

// rig is a running server over a store, with keys of two tenants and an operator.
type rig struct {
	t      *testing.T
	store  *store
	server *Server
	client *http.Client
	url    string

	tenant, other, operator string // keys
}

// newRig starts a server; configure may be nil.
func newRig(t *testing.T, configure func(*Config, *store)) *rig {
	t.Helper()
	r := &rig{t: t, store: newStore()}
	cfg := Config{ShutdownDelay: -1, TURN: auth.TURN{URLs: []string{"stun:s.example.com", "turn:t.example.com"}, Secrets: []string{"secret"}, TTL: time.Minute}}
	if configure != nil {
		configure(&cfg, r.store)
	}
	r.tenant, r.other, r.operator = r.key(auth.RoleTenant, "t-1"), r.key(auth.RoleTenant, "t-2"), r.key(auth.RoleOperator, "")
	server, err := New(dependencies(t, r.store), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.server, r.url = server, "http://"+server.Addr().String()
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return r
}

func dependencies(t *testing.T, s *store) Dependencies {
	t.Helper()
	log := cmp.Or(s.log, testkit.Logger(t))
	clock := func() time.Time { return time.Now().Add(time.Duration(s.keyAge.Load())) }
	keys := auth.NewKeys(s, log, auth.KeysConfig{})
	rejoin, err := auth.NewRejoinSigner([][]byte{bytes.Repeat([]byte("r"), auth.RejoinSecretSize)})
	if err != nil {
		t.Fatal(err)
	}
	return Dependencies{
		Placer: s, Sessions: s, Workers: s, Renewals: s, Events: s, Capacity: s, Users: s, Backplane: s.backplane, Database: s, Waker: s, Refusals: s,
		Keys: auth.NewAuthenticator(s, auth.AuthenticatorConfig{Now: clock}), Signer: auth.NewSigner(keys), RejoinTokens: rejoin,
		SessionTokens: auth.NewSessionTokens(keys), SigningKeys: keys, Log: log,
	}
}

func (r *rig) key(role auth.Role, tenantID string) string {
	r.t.Helper()
	plaintext, record, err := auth.GenerateKey(role)
	if err != nil {
		r.t.Fatal(err)
	}
	record.TenantID = tenantID
	r.store.keys[record.ID] = record
	return plaintext
}

// reply is an answer that was read whole.
type reply struct {
	*http.Response
	status int
	body   []byte
}

func (a reply) problem(t *testing.T) wire.Problem {
	t.Helper()
	return parse[wire.Problem](t, a)
}

func parse[T any](t *testing.T, a reply) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(a.body, &value); err != nil {
		t.Fatalf("%d is no JSON: %v: %q", a.status, err, a.body)
	}
	return value
}

// call sends a request with a JSON body, unless that is empty, and checks the answer against openapi.yaml.
func (r *rig) call(method, path, key, body string) reply {
	r.t.Helper()
	request := r.request(method, path, key, strings.NewReader(body))
	return r.send(request)
}

func (r *rig) request(method, path, key string, body io.Reader) *http.Request {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if request.ContentLength != 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	return request
}

func (r *rig) send(request *http.Request) reply {
	r.t.Helper()
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatalf("%s %s: %v", request.Method, request.URL.Path, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", request.Method, request.URL.Path, err)
	}
	checkAnswer(r.t, request, response, body)
	return reply{response, response.StatusCode, body}
}

// place starts a session for the first tenant.
func (r *rig) place(body string) wire.Placement {
	r.t.Helper()
	a := r.call(http.MethodPost, "/v1/sessions", r.tenant, body)
	if a.status != http.StatusCreated {
		r.t.Fatalf("place: %d %s", a.status, a.body)
	}
	return parse[wire.Placement](r.t, a)
}

// secretText is what no answer may contain: text of SQL, Go and of the decoder.
var secretText = regexp.MustCompile(`(?i)\bselect\b|\binsert\b|sqlstate|\bpgx\b|goroutine|jsontext|json:|strconv`)

// checkAnswer holds for every answer: it is one that openapi.yaml promises, 5xx is 503 only and says when to return, and
// nothing of our insides shows.
func checkAnswer(t *testing.T, request *http.Request, response *http.Response, body []byte) {
	t.Helper()
	if response.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: no request id", request.Method, request.URL.Path)
	}
	if response.StatusCode >= 500 {
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if response.StatusCode != http.StatusServiceUnavailable || err != nil || seconds < 1 {
			t.Errorf("%s %s: %d, Retry-After %q: %s", request.Method, request.URL.Path, response.StatusCode, response.Header.Get("Retry-After"), body)
		}
	}
	if response.StatusCode >= 400 {
		if got := response.Header.Get("Content-Type"); got != "application/problem+json" && request.Method != http.MethodHead {
			t.Errorf("%s %s: %d as %q: %s", request.Method, request.URL.Path, response.StatusCode, got, body)
		}
		if secretText.Match(body) {
			t.Errorf("%s %s: the answer shows our insides: %s", request.Method, request.URL.Path, body)
		}
	}
	if err := validate(request, response, body); err != nil {
		t.Errorf("%s %s: answer %d is not as openapi.yaml says: %v\n%s", request.Method, request.URL.Path, response.StatusCode, err, body)
	}
}

var document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(spec.OpenAPI())
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

var documentRouter = sync.OnceValues(func() (routers.Router, error) {
	doc, err := document()
	if err != nil {
		return nil, err
	}
	return legacy.NewRouter(doc)
})

// validate compares an answer with openapi.yaml. Paths and methods that it does not have are not its business.
func validate(request *http.Request, response *http.Response, body []byte) error {
	router, err := documentRouter()
	if err != nil {
		return err
	}
	local := request.Clone(request.Context())
	local.URL.Scheme, local.URL.Host, local.Host = "", "", ""
	route, parameters, err := router.FindRoute(local)
	if err != nil || request.Method == http.MethodHead || len(local.URL.Path) > 1 && strings.HasSuffix(local.URL.Path, "/") {
		return nil //nolint:nilerr // not an operation of the document
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route},
		Status:                 response.StatusCode,
		Header:                 response.Header,
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: !strings.Contains(response.Header.Get("Content-Type"), "json")},
	}
	return openapi3filter.ValidateResponse(context.Background(), input.SetBodyBytes(body))
}
