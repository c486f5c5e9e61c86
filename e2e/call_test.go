package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// reply is an answer that was read whole.
type reply struct {
	status int
	header http.Header
	body   string
	closed bool // the connection, by the server
}

// problem is the body of a refusal.
type problem struct {
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Field  string `json:"field"`
		Reason string `json:"reason"`
	} `json:"errors"`
}

// placement is what the tests look at in an answer that places a session.
type placement struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	Generation int64  `json:"generation"`
	Region     string `json:"region"`
	Spilled    bool   `json:"spilled"`
	Owner      struct {
		WorkerID string `json:"worker_id"`
	} `json:"owner"`
}

// call makes one request with a JSON body, unless that is empty, and checks what holds for every answer.
func call(t testing.TB, method, url, key, body string) reply {
	t.Helper()
	return send(t, newRequest(t, method, url, key, strings.NewReader(body)))
}

func newRequest(t testing.TB, method, url, key string, body io.Reader) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if request.ContentLength != 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	return request
}

func send(t testing.TB, request *http.Request) reply {
	t.Helper()
	answer, err := exchange(request)
	if err != nil {
		t.Fatalf("%s %s: %v", request.Method, request.URL.Path, err)
	}
	answer.check(t, request)
	return answer
}

// exchange is for goroutines of a test, which may not end it.
func exchange(request *http.Request) (reply, error) {
	response, err := run.http.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(body), response.Close}, err
}

// insides is what no answer may contain: text of SQL, Go and of decoders.
var insides = regexp.MustCompile(`(?i)\bselect\b|\binsert\b|sqlstate|\bpgx\b|goroutine|jsontext|strconv|berth\.sessions`)

// check holds for every answer: an error is a problem document, a 5xx is 503 and says when to return.
func (r reply) check(t testing.TB, request *http.Request) {
	t.Helper()
	if r.status >= 500 {
		seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
		if r.status != http.StatusServiceUnavailable || err != nil || seconds < 1 {
			t.Errorf("%s %s: %d, Retry-After %q: %s", request.Method, request.URL.Path, r.status, r.header.Get("Retry-After"), r.body)
		}
	}
	if r.status >= 400 && r.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s: %d as %q: %s", request.Method, request.URL.Path, r.status, r.header.Get("Content-Type"), r.body)
	}
	if r.status >= 400 && insides.MatchString(r.body) {
		t.Errorf("%s %s: the answer shows our insides: %s", request.Method, request.URL.Path, r.body)
	}
}

func parse[T any](t testing.TB, r reply) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(r.body), &value); err != nil {
		t.Fatalf("%d is not the JSON that was expected: %v: %q", r.status, err, r.body)
	}
	return value
}

// code is that of a refusal, or "" for any other answer.
func (r reply) code(t testing.TB) string {
	t.Helper()
	if r.status < 400 {
		return ""
	}
	return parse[problem](t, r).Code
}

// detached is a context for what a cleanup does, when the test's own is over.
func detached(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}
