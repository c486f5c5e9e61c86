package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// said is what the tokens of a placement say of its peer, both the same.
func (r *rig) said(placed wire.Placement) grant {
	r.t.Helper()
	session, err := r.server.service.deps.SessionTokens.Verify(r.t.Context(), placed.Token, r.store.now)
	if err != nil {
		r.t.Fatal(err)
	}
	rejoin, err := r.server.service.deps.RejoinTokens.Verify(placed.RejoinToken)
	if err != nil {
		r.t.Fatal(err)
	}
	if session.User != rejoin.User || !cmp.Equal(session.Topics, rejoin.Topics) || value(placed.Peer.User, "") != session.User {
		r.t.Errorf("the session token says %+v, the rejoin token %+v, the answer %+v", session, rejoin, placed.Peer)
	}
	return grant{session.User, session.Topics}
}

func (r *rig) says(placed wire.Placement, want grant) {
	r.t.Helper()
	if got := r.said(placed); !cmp.Equal(got, want, cmp.AllowUnexported(grant{})) {
		r.t.Errorf("tokens say %+v, want %+v", got, want)
	}
}

func TestTokensSayWhoThePeerIsAndWhichTopicsItMayUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const said = `{"id":"p-1","user":"ann","topics":{"subscribe":["room:7","news:*"],"publish":[]}}`
	want := grant{"ann", berth.TopicGrant{Subscribe: []string{"room:7", "news:*"}, Publish: []string{}}}
	first := r.place(`{"id":"s-1","peer":` + said + `}`)
	r.says(first, want)
	r.says(r.place(`{}`), grant{})
	r.says(r.place(`{"peer":{"topics":{"subscribe":[]}}}`), grant{topics: berth.TopicGrant{Subscribe: []string{}}})
	if got := r.store.starts[0].Peer; got.User != "" {
		t.Errorf("the claim path got %+v", got)
	}

	peer := r.call("POST", "/v1/sessions/s-1/peers", r.tenant, `{"id":"p-2","user":"bob","topics":{"publish":["*"]}}`)
	r.says(parse[wire.Placement](t, peer), grant{"bob", berth.TopicGrant{Publish: []string{"*"}}})

	rejoined := r.call("POST", "/v1/sessions/s-1/rejoin", first.RejoinToken, `{"generation":1}`)
	r.says(parse[wire.Placement](t, rejoined), want)
	again := r.call("POST", "/v1/sessions/s-1/rejoin", parse[wire.Placement](t, rejoined).RejoinToken, `{"generation":1}`)
	r.says(parse[wire.Placement](t, again), want)
}

func TestRejoinByKeyGivesWhatItSaysAndNoTopicsByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.place(`{"id":"s-1","peer":{"topics":{"subscribe":["room:7"]}}}`).RejoinToken
	none := berth.TopicGrant{Subscribe: []string{}, Publish: []string{}}
	publish := berth.TopicGrant{Publish: []string{"room:7"}}
	rejoin := func(body string, want grant) {
		t.Helper()
		a := r.call("POST", "/v1/sessions/s-1/rejoin", r.tenant, body)
		if a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
		r.says(parse[wire.Placement](t, a), want)
	}
	rejoin(`{"generation":1}`, grant{topics: none})
	r.store.mu.Lock()
	r.store.sessions[0].peers[0].User = "ann" // it connected
	r.store.mu.Unlock()
	rejoin(`{"generation":1}`, grant{"ann", none})
	rejoin(`{"generation":1,"peer":{}}`, grant{"ann", none})
	rejoin(`{"generation":1,"peer":{"user":"bob"}}`, grant{"bob", none})
	rejoin(`{"generation":1,"peer":{"topics":{"publish":["room:7"]}}}`, grant{"ann", publish})
	for _, tc := range []struct{ key, peer, field string }{
		{r.tenant, `{"user":"a b"}`, "peer.user"},
		{r.tenant, `{"topics":{"subscribe":["**"]}}`, "peer.topics.subscribe.0"},
		{token, `{}`, "peer"},
		{token, `{"user":"bob","topics":{}}`, "peer"},
	} {
		a := r.call("POST", "/v1/sessions/s-1/rejoin", tc.key, `{"generation":1,"peer":`+tc.peer+`}`)
		if fields := a.problem(t).Errors; a.status != http.StatusBadRequest || fields == nil || len(*fields) != 1 || (*fields)[0].Field != tc.field {
			t.Errorf("%s: %d %s", tc.peer, a.status, a.body)
		}
	}
}

func TestReplayedStartMintsWhatTheRequestSays(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	post := func(body string) reply {
		request := r.request("POST", "/v1/sessions", r.tenant, strings.NewReader(body))
		request.Header.Set("Idempotency-Key", "k")
		return r.send(request)
	}
	const body = `{"peer":{"user":"ann","topics":{"publish":["a"]}}}`
	for range 2 {
		r.says(parse[wire.Placement](t, post(body)), grant{"ann", berth.TopicGrant{Publish: []string{"a"}}})
	}
	for _, other := range []string{`{"peer":{"user":"bob","topics":{"publish":["a"]}}}`, `{"peer":{"user":"ann","topics":{"publish":["b"]}}}`, `{"peer":{"user":"ann"}}`} {
		if a := post(other); a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", other, a.status)
		}
	}
}

func TestUserAndTopicsAreCheckedAndNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	list := func(n int, pattern string) string {
		return `["` + strings.Join(strings.Split(strings.Repeat(pattern+" ", n-1)+pattern, " "), `","`) + `"]`
	}
	long := strings.Repeat("x", berth.MaxTopicLength)
	for peer, field := range map[string]string{
		`{"user":""}`:                              "user",
		`{"user":"a b"}`:                           "user",
		`{"user":7}`:                               "user",
		`{"user":null}`:                            "user",
		`{"topics":[]}`:                            "topics",
		`{"topics":{"Subscribe":[]}}`:              "topics.Subscribe",
		`{"topics":{"subscribe":"a"}}`:             "topics.subscribe",
		`{"topics":{"subscribe":["a",7]}}`:         "topics.subscribe.1",
		`{"topics":{"subscribe":["a","b/c"]}}`:     "topics.subscribe.1",
		`{"topics":{"publish":["a*b"]}}`:           "topics.publish.0",
		`{"topics":{"publish":[""]}}`:              "topics.publish.0",
		`{"topics":{"publish":["` + long + `*"]}}`: "topics.publish.0",
		`{"topics":{"publish":` + list(berth.MaxTopicPatterns+1, "a") + `}}`:                         "topics.publish",
		`{"topics":{"subscribe":["a"],"publish":` + list(berth.MaxTopicGrant/len(long), long) + `}}`: "topics",
	} {
		r.refusedBy(r.call("POST", "/v1/sessions", r.tenant, `{"peer":`+peer+`}`), peer, "peer."+field)
		r.refusedBy(r.call("POST", "/v1/sessions/s-1/peers", r.tenant, peer), peer, field)
	}
	if a := r.call("POST", "/v1/sessions", r.tenant, `{"peer":{"topics":{"publish":`+list(berth.MaxTopicGrant/len(long), long)+`}}}`); a.status != 201 {
		t.Errorf("as many characters as may be: %d %s", a.status, a.body)
	}
}

// token mints a session token of a session that is placed.
func (r *rig) token(session berth.SessionKey, topics berth.TopicGrant, now time.Time) string {
	r.t.Helper()
	signed, _, err := r.server.service.deps.Signer.Mint(r.t.Context(), auth.SessionToken{
		WorkerID: "w-1", SessionID: "s-1", SessionKey: session, TenantID: "t-1", Generation: 101, PeerID: "p-1", Role: "offer", Topics: topics,
	}, now)
	if err != nil {
		r.t.Fatal(err)
	}
	return signed
}
