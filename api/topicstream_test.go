package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

const followA = "/v1/topics/a/messages"

// told reads the next event of a topic's stream, past what fills the silence.
func (l *listener) told() block {
	l.t.Helper()
	for {
		if b := l.block(); b.event != "" {
			return b
		}
	}
}

// subscribed reads the next event, which must be one that says where the stream goes on.
func (l *listener) subscribed() wire.Subscribed {
	l.t.Helper()
	b := l.told()
	var s wire.Subscribed
	if err := json.Unmarshal([]byte(b.data), &s); err != nil || b.event != "subscribed" || b.id != fmt.Sprintf("%s:%d", s.Epoch, s.Offset) || s.Topic != "a" {
		l.t.Fatalf("%+v says not where it goes on: %v", b, err)
	}
	return s
}

// opens expects how a stream answers the position that it was asked to go on from.
func (l *listener) opens(recovered wire.SubscribedRecovered, offset, from, to int64) wire.Subscribed {
	l.t.Helper()
	s := l.subscribed()
	missing := value(s.Missing, wire.OffsetRange{})
	if value(s.Recovered, "") != recovered || s.Offset != offset || missing != (wire.OffsetRange{From: from, To: to}) {
		l.t.Errorf("begins with %+v, missing %+v", s, missing)
	}
	return s
}

// messages reads so many messages, which must begin at an offset.
func (l *listener) messages(first, n int64) {
	l.t.Helper()
	for offset := first; offset < first+n; offset++ {
		b := l.told()
		var m wire.TopicMessage
		if err := json.Unmarshal([]byte(b.data), &m); err != nil || b.event != "message" || m.Offset != offset || m.Topic != "a" ||
			!strings.HasSuffix(b.id, fmt.Sprintf(":%d", offset)) {
			l.t.Fatalf("got %.200s as %s %s, want message %d", b.data, b.event, b.id, offset)
		}
	}
}

// fill publishes n messages behind the API's back.
func (r *rig) fill(n int, data string) {
	r.t.Helper()
	for range n {
		if _, err := r.store.backplane.Memory.Publish(r.t.Context(), backplane.Outgoing{Topic: "t/t-1/a", Data: []byte(data)}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestTopicStreamSaysWhereItBeginsAndThenWhatComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.fill(3, `1`)
	l := r.listen(followA, r.tenant, "")
	at := l.opens("", 3, 0, 0)
	theirs := r.listen(followA, r.other, "")
	theirs.opens("", 0, 0, 0)
	r.publish("a", `{"text":"<&\u0041>","n":1e400}`)
	b := l.told()
	if want := (block{id: at.Epoch + ":4", event: "message", data: `{"topic":"a","offset":4,"data":{"text":"<&\u0041>","n":1e400}}`}); b != want {
		t.Errorf("got %+v, want %+v", b, want)
	}
	r.fill(100, "{\r\n\t\"n\": 2\n}")
	l.messages(5, 100)

	r.store.backplane.Forget() // as a crash of the database does
	if s := l.opens(wire.Reset, 0, 0, 0); s.Epoch == at.Epoch {
		t.Error("the epoch is the old one")
	}
	r.fill(1, `3`)
	l.messages(1, 1)
	theirs.opens(wire.Reset, 0, 0, 0)
}

func TestTopicStreamGoesOnAfterTheLastMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.fill(10, `1`)
	epoch := r.publish("a", `1`).Epoch
	for name, tc := range map[string]struct{ path, header string }{
		"by header":                {followA, epoch + ":7"},
		"by query":                 {followA + "?from=" + epoch + ":7", ""},
		"by both, the header wins": {followA + "?from=" + epoch + ":2", epoch + ":7"},
	} {
		l := r.listen(tc.path, r.tenant, tc.header)
		if l.opens(wire.Complete, 7, 0, 0); t.Failed() {
			t.Fatal(name)
		}
		l.messages(8, 4)
		l.close()
	}
	for _, tc := range []struct {
		from      string
		offset    int64
		recovered wire.SubscribedRecovered
	}{{epoch + ":0", 0, wire.Complete}, {epoch + ":11", 11, wire.Complete}, {epoch + ":12", 11, wire.Reset}, {"another:3", 11, wire.Reset}} {
		r.listen(followA, r.tenant, tc.from).opens(tc.recovered, tc.offset, 0, 0)
	}
	r.fill(backplane.Kept, `1`)
	l := r.listen(followA, r.tenant, epoch+":7")
	l.opens(wire.Partial, 11, 8, 11)
	l.messages(12, backplane.Kept)
}

func TestTopicStreamsAreRefusedLikeEveryCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, last := range []string{"x", ":", "e:", ":1", "e:-1", "e:01", "e:9223372036854775808", "e:1:1", "e 1", "e:\u0661", strings.Repeat("e", 65) + ":1"} {
		request := r.request("GET", followA, r.tenant, http.NoBody)
		request.Header.Set("Last-Event-ID", last)
		r.refusedBy(r.send(request), last, "Last-Event-ID")
	}
	r.refusedBy(r.call("GET", followA+"?from=x", r.tenant, ""), "x", "from")
	r.refusedBy(r.call("GET", followA+"?from=e:1&from=e:1", r.tenant, ""), "twice", "from")
	r.refusedBy(r.call("GET", "/v1/topics/a%2Fb/messages", r.tenant, ""), "a/b", "topic")
	if a := r.call("GET", followA, r.operator, ""); a.status != 403 {
		t.Errorf("operator: %d", a.status)
	}
	if a := r.call("GET", followA, "", ""); a.status != 401 {
		t.Errorf("nobody: %d", a.status)
	}
	if a := r.call("HEAD", followA, r.tenant, ""); a.status != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", a.status, a.Header)
	}
}

func TestPeerFollowsTheTopicsThatItsTokenAllows(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	placed := r.place(`{"id":"s-1","peer":{"topics":{"subscribe":["a","b:*"]}}}`)
	r.listen(followA, placed.Token, "").opens("", 0, 0, 0)
	l := r.listen(followA+"?token="+placed.Token, "", "")
	l.opens("", 0, 0, 0)
	r.publish("a", `1`)
	l.messages(1, 1)
	all := r.place(`{"id":"s-2"}`).Token
	none := r.place(`{"id":"s-3","peer":{"topics":{"subscribe":[]}}}`).Token
	for name, tc := range map[string]struct {
		path, token string
		status      int
	}{
		"another topic":    {"/v1/topics/c/messages", placed.Token, 403},
		"of its prefix":    {"/v1/topics/b:7/messages", placed.Token, 200},
		"of any name":      {"/v1/topics/c/messages", all, 200},
		"of none":          {followA, none, 403},
		"a rejoin token":   {followA, placed.RejoinToken, 401},
		"changed":          {followA, placed.Token[:len(placed.Token)-2], 401},
		"expired":          {followA, r.token(1, berth.TopicGrant{}, r.store.now.Add(-auth.SessionTokenLife-time.Minute)), 401},
		"of no session":    {followA, r.token(1, berth.TopicGrant{}, r.store.now), 200},
		"not of this time": {followA, r.token(1, berth.TopicGrant{}, r.store.now.Add(time.Hour)), 401},
	} {
		for _, inQuery := range []bool{false, true} {
			request := r.request("HEAD", tc.path, tc.token, http.NoBody)
			if inQuery {
				request = r.request("HEAD", tc.path+"?token="+tc.token, "", http.NoBody)
			}
			if a := r.send(request); a.status != tc.status {
				t.Errorf("%s, in the query %v: %d, want %d", name, inQuery, a.status, tc.status)
			}
		}
	}
	if a := r.call("GET", followA+"?token="+r.tenant, "", ""); a.status != 401 {
		t.Errorf("an API key in the query: %d", a.status)
	}
	if a := r.call("GET", "/v1/topics/a", placed.Token, ""); a.status != 401 {
		t.Errorf("other calls with the token: %d", a.status)
	}
	if a := r.call("POST", followA, placed.Token, `{"data":1}`); a.status != 401 {
		t.Errorf("publishing with the token: %d", a.status)
	}
	r.call("DELETE", "/v1/sessions/s-1", r.tenant, "")
	if a := r.call("GET", followA, placed.Token, ""); a.status != 410 {
		t.Errorf("after the session: %d %s", a.status, a.body)
	}
}

func TestTokenInTheQueryIsNeverLogged(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer // the handler locks it, and nobody writes after stop
	r := newRig(t, func(_ *Config, s *store) {
		s.log = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	token := r.place(`{}`).Token
	l := r.listen(followA+"?token="+token, "", "")
	l.opens("", 0, 0, 0)
	r.call("GET", followA+"?token="+token+"x", "", "")
	r.store.setFail(fmt.Errorf("dial: %w", berth.ErrUnavailable))
	r.call("GET", followA+"?token="+token, "", "")
	r.store.setFail(nil)
	stop(t, r.server)
	got := lines.String()
	if strings.Count(got, "/v1/topics/{topic}/messages") < 3 {
		t.Errorf("requests are not logged: %s", got)
	}
	if strings.Contains(got, token[:20]) || strings.Contains(got, token[len(token)-20:]) {
		t.Errorf("the token is logged: %s", got)
	}
}

func TestTopicIsOpenToPagesOfTheAllowedOrigins(t *testing.T) {
	t.Parallel()
	const allowed = "https://app.example.com"
	r := newRig(t, func(c *Config, _ *store) { c.AllowedOrigins = []string{allowed} })
	for origin, ok := range map[string]bool{allowed: true, "https://evil.example.com": false, "null": false} {
		preflight := r.request("OPTIONS", followA, "", http.NoBody)
		preflight.Header.Set("Origin", origin)
		a := r.send(preflight)
		if want := map[bool]int{true: 204, false: 403}[ok]; a.status != want || (a.Header.Get("Access-Control-Allow-Origin") == origin) != ok ||
			ok && (a.Header.Get("Access-Control-Allow-Methods") != "GET" || !strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), "Last-Event-ID")) {
			t.Errorf("preflight from %s: %d %v", origin, a.status, a.Header)
		}
		get := r.request("HEAD", followA, r.tenant, http.NoBody)
		get.Header.Set("Origin", origin)
		if a := r.send(get); a.status != 200 || (a.Header.Get("Access-Control-Allow-Origin") == origin) != ok || a.Header.Get("Vary") != "Origin" {
			t.Errorf("from %s: %d %v", origin, a.status, a.Header)
		}
		post := r.request("POST", followA, r.tenant, strings.NewReader(`{"data":1}`))
		post.Header.Set("Origin", origin)
		if a := r.send(post); a.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("publishing is open to %s", origin)
		}
	}
}

// deaf opens a stream and reads nothing of it.
func (r *rig) deaf(query string) {
	r.t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = connection.Close() })
	if _, err := fmt.Fprintf(connection, "GET %s%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", followA, query, r.tenant); err != nil {
		r.t.Fatal(err)
	}
}

// TestScenario_W03_ReaderOfATopicStalls: another one gets all in order meanwhile.
func TestScenario_W03_ReaderOfATopicStalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.StreamWriteTimeout = 500 * time.Millisecond })
	open := r.server.service.topicPlaces.taken
	well := r.listen(followA, r.tenant, "")
	well.opens("", 0, 0, 0)
	r.deaf("")
	testkit.EventuallyTrue(t, 5*time.Second, "both are open", func() bool { return open() == 2 })
	data, sent := `"`+strings.Repeat("x", 60<<10)+`"`, int64(0)
	testkit.EventuallyTrue(t, 20*time.Second, "the one that does not read is cut", func() bool {
		sent++
		r.fill(1, data)
		well.messages(sent, 1)
		return open() == 1
	})
	if cut := testutil.ToFloat64(r.server.service.metrics.cut.WithLabelValues(streamSlow)); cut != 1 {
		t.Errorf("%v slow clients are counted", cut)
	}
	sent++
	r.fill(1, data)
	well.messages(sent, 1)
}

// TestClientIsNotCutByItsOwnHistory resumes over more than the queue holds, with a client that takes its time.
func TestClientIsNotCutByItsOwnHistory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	epoch := r.publish("a", `1`).Epoch
	const more = 4 * queueBytes / (40 << 10)
	r.fill(more, `"`+strings.Repeat("x", 40<<10)+`"`)
	l := r.listen(followA, r.tenant, epoch+":0")
	l.opens(wire.Complete, 0, 0, 0)
	<-time.After(100 * time.Millisecond) // the history stands still meanwhile
	r.fill(queueMessages/2, `2`)         // which is read as part of it, or has room beside it
	l.messages(1, 1+more+queueMessages/2)
}

func TestTopicStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.TopicStreams, c.Streams = 8, 4 })
	mine := []*listener{r.listen(followA, r.tenant, ""), r.listen(followA, r.tenant, "")}
	if a := r.call("GET", followA, r.tenant, ""); a.status != 503 || a.problem(t).Code != "unavailable" {
		t.Errorf("more than a quarter of one tenant: %d %s", a.status, a.body)
	}
	r.listen("/v1/events", r.tenant, "") // has places of its own
	mine[0].close()
	testkit.EventuallyTrue(t, 5*time.Second, "the place is free again", func() bool { return r.server.service.topicPlaces.taken() == 1 })
	r.listen(followA, r.tenant, "")
	seen, err := r.store.backplane.Memory.Presence(t.Context(), "t/t-1/a")
	if err != nil || seen.Members != 2 {
		t.Errorf("%+v, %v: who left is still subscribed", seen, err)
	}
}

func TestSilenceOfATopicIsFilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.StreamKeepAlive = 20 * time.Millisecond })
	l := r.listen(followA, r.tenant, "")
	l.opens("", 0, 0, 0)
	last := l.last
	for range 3 {
		if b := l.block(); b != (block{comment: "nothing new"}) {
			t.Errorf("silence: %+v", b)
		}
	}
	if l.last != last {
		t.Errorf("the id became %s", l.last)
	}
}

func TestStopEndsTopicStreamsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	epoch := r.publish("a", `1`).Epoch
	r.fill(backplane.Kept-1, `"`+strings.Repeat("x", 60<<10)+`"`)
	l := r.listen(followA, r.tenant, "")
	l.opens("", backplane.Kept, 0, 0)
	r.deaf("?from=" + epoch + ":0") // waits in its history
	testkit.EventuallyTrue(t, 5*time.Second, "both are open", func() bool { return r.server.service.topicPlaces.taken() == 2 })
	began := time.Now()
	stop(t, r.server)
	if took := time.Since(began); took > 5*time.Second { // milliseconds, on an idle machine
		t.Errorf("stopped after %v", took)
	}
	if n := r.server.service.topicPlaces.taken(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
}

func TestTopicStreamOfARevokedKeyGetsNothingMore(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	token := r.place(`{}`).Token
	peer, l := r.listen(followA, token, ""), r.listen(followA, r.tenant, "")
	peer.opens("", 0, 0, 0)
	l.opens("", 0, 0, 0)
	r.store.mu.Lock()
	clear(r.store.keys)
	r.store.mu.Unlock()
	r.store.keyAge.Store(int64(time.Minute)) // what is remembered of it
	r.fill(2, `1`)
	if n, err := l.ends(); n != 0 || err != io.EOF { //nolint:errorlint // exactly that one is the good order
		t.Errorf("%d events, then %v", n, err)
	}
	peer.messages(1, 2) // its token is not a key
}

// TestTopicStreamsMissNothingAndRepeatNothing has a client that loses its connection again and again.
func TestTopicStreamsMissNothingAndRepeatNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.listen(followA, r.tenant, "")
	first.opens("", 0, 0, 0)
	last, random := first.last, testkit.Rand(t)
	first.close()
	const total = 1000
	var taken atomic.Int64
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := int64(0); n < total; n++ {
			if n-taken.Load() > backplane.Kept/2 { // or history would be lost
				n--
				runtime.Gosched()
				continue
			}
			r.fill(1, `1`)
		}
	})
	defer writer.Wait()
	for seen := int64(0); seen < total; {
		l := r.listen(followA, r.tenant, last)
		l.opens(wire.Complete, seen, 0, 0)
		n := min(1+random.Int64N(100), total-seen)
		l.messages(seen+1, n)
		seen += n
		taken.Store(seen)
		last = l.last
		l.close()
	}
}
