package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
)

// text is any string, with a liking for what breaks things.
func text() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._~-]{0,20}`),
		rapid.SampledFrom([]string{"", " ", "..", "a/b", "\x00", "é", "\u2028", "echo", "play", "media", "end", "rejoin", "local", "nowhere", "offer", `"`, `\`}),
		rapid.String(),
	)
}

// member is any JSON value, two levels deep at most.
func member(depth int) *rapid.Generator[any] {
	simple := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(text(), func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }), rapid.Map(rapid.IntRange(0, 100000), func(n int) any { return n }),
		rapid.Map(rapid.SampledFrom([]string{"1.5", "3e1", "1e131072", "-0", "30"}), func(s string) any { return json.Number(s) }),
	}
	if depth == 0 {
		return rapid.OneOf(simple...)
	}
	return rapid.OneOf(append(simple,
		rapid.Map(rapid.SliceOfN(member(depth-1), 0, 3), func(list []any) any { return list }),
		rapid.Map(rapid.MapOfN(text(), member(depth-1), 0, 3), func(m map[string]any) any { return m }),
	)...)
}

// request is a body that is often nearly right.
func body() *rapid.Generator[string] {
	names := []string{"id", "kind", "peer", "region", "spill", "handler", "ttl_seconds", "idle_timeout_seconds", "on_worker_loss", "metadata", "slots", "strategy", "selector", "ID", "generation", "lost", "role", "deadline_seconds", "override", "user", "topics", "subscribe", "publish", "data"}
	object := rapid.Map(rapid.MapOfN(rapid.OneOf(rapid.SampledFrom(names), text()), member(2), 0, 4), func(m map[string]any) string {
		encoded, _ := json.Marshal(m) //nolint:errchkjson // made of what can be encoded
		return string(encoded)
	})
	broken := rapid.Custom(func(t *rapid.T) string {
		whole := []byte(object.Draw(t, "object"))
		at := rapid.IntRange(0, len(whole)-1).Draw(t, "at")
		whole[at] = rapid.Byte().Draw(t, "byte")
		return string(whole) + rapid.SampledFrom([]string{"", " ", "{}", "\x00", "x"}).Draw(t, "tail")
	})
	return rapid.OneOf(object, object, broken, rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
}

// TestNoRequestIsAnsweredWithABug sends whatever comes to mind to every call: the answer is what openapi.yaml says, and
// the store is reached exactly by what is not refused for its form.
func TestNoRequestIsAnsweredWithABug(t *testing.T) {
	t.Parallel()
	s := newStore()
	r := &rig{t: t, store: s}
	keys := []string{r.key(auth.RoleTenant, "t-1"), r.key(auth.RoleOperator, ""), ""}
	server, err := New(dependencies(t, s), Config{})
	if err != nil {
		t.Fatal(err)
	}
	calls := []string{
		"POST /v1/sessions", "POST /v1/sessions", "GET /v1/sessions", "GET /v1/sessions/ID", "DELETE /v1/sessions/ID", "POST /v1/sessions/ID/peers",
		"POST /v1/sessions/ID/rejoin", "GET /v1/workers", "GET /v1/workers/ID", "POST /v1/workers/ID/drain", "DELETE /v1/workers/ID/drain",
		"POST /v1/workers/ID/shed", "GET /v1/topics/ID", "POST /v1/topics/ID/messages", "POST /v1/users/ID/messages", "GET /v1/capacity", "POST /v1/workers/ID/renewal",
	}
	rapid.Check(t, func(rt *rapid.T) {
		method, path, _ := strings.Cut(rapid.SampledFrom(calls).Draw(rt, "call"), " ")
		path = strings.Replace(path, "ID", url.PathEscape(text().Draw(rt, "path id")), 1)
		if rapid.Bool().Draw(rt, "with query") {
			name := rapid.SampledFrom([]string{"tenant", "limit", "cursor", "state", "worker"}).Draw(rt, "parameter")
			path += "?" + name + "=" + url.QueryEscape(text().Draw(rt, "parameter value"))
		}
		request := httptest.NewRequestWithContext(t.Context(), method, "http://berth.test"+path, strings.NewReader(body().Draw(rt, "body")))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+rapid.SampledFrom(keys).Draw(rt, "key"))
		before := s.calls.Load()
		answer := httptest.NewRecorder()
		server.http.Handler.ServeHTTP(answer, request)

		response, got := answer.Result(), answer.Body.Bytes()
		checkAnswer(t, request, response, got)
		if reached := s.calls.Load() - before; reached > 2 || reached > 0 && slices.Contains([]int{401, 405, 413, 415}, response.StatusCode) {
			rt.Fatalf("%s %s: %d after %d calls of the store", method, path, response.StatusCode, reached)
		}
		if response.StatusCode >= http.StatusInternalServerError && response.StatusCode != http.StatusServiceUnavailable || t.Failed() {
			rt.Fatalf("%s %s: %d %s", method, path, response.StatusCode, got)
		}
	})
}

// TestBodyNeverReachesTheStoreWhenInvalid asks a validator that shares nothing with ours about what got through.
func TestBodyNeverReachesTheStoreWhenInvalid(t *testing.T) {
	t.Parallel()
	s := newStore()
	r := &rig{t: t, store: s}
	key := r.key(auth.RoleTenant, "t-1")
	server, err := New(dependencies(t, s), Config{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		sent := body().Draw(rt, "body")
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://berth.test/v1/sessions", strings.NewReader(sent))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+key)
		before := s.calls.Load()
		answer := httptest.NewRecorder()
		server.http.Handler.ServeHTTP(answer, request)
		reached := s.calls.Load() > before
		if answer.Code != http.StatusBadRequest && !reached || answer.Code >= http.StatusInternalServerError && answer.Code != http.StatusServiceUnavailable {
			rt.Fatalf("%d %s", answer.Code, answer.Body)
		}
		if !reached || answer.Code == http.StatusBadRequest {
			return // refused; the store refuses unknown regions itself
		}
		if err := validRequest([]byte(sent)); err != nil {
			rt.Fatalf("an invalid body reached the store: %v: %q", err, sent)
		}
	})
}

// validRequest checks a body against its schema in openapi.yaml.
func validRequest(sent []byte) error {
	doc, err := document()
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(sent, &value); err != nil {
		return err
	}
	return doc.Components.Schemas["SessionRequest"].Value.VisitJSON(value)
}

func TestProblemsNameFieldsInWordsOnly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var request wire.SessionRequest
		sent := body().Draw(rt, "body")
		err := unmarshal([]byte(sent), &request)
		if err == nil {
			return
		}
		for _, c := range err.Error() {
			if c < ' ' || c > '~' {
				rt.Fatalf("the error for %q repeats what was sent: %q", sent, err)
			}
		}
	})
}
