package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

func TestSessionStreamBeginsAtItsBeginningAndEndsWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"s-1"}`)
	r.place(`{"id":"s-2"}`)
	l := r.listen("/v1/sessions/s-1/events", r.tenant, "")
	first, created := l.event()
	if first.id != "1000-1" || created.SessionID != "s-1" || created.TenantID != nil || !created.At.Equal(r.store.now) || string(created.Data) != `{"worker_id":"w-1"}` {
		t.Errorf("first %+v: %+v", first, created)
	}
	r.store.happen("t-1", "s-2", "active")
	r.store.happen("t-1", "s-1", "active")
	r.store.happen("t-1", "s-1", "peer_disconnected")
	r.call("DELETE", "/v1/sessions/s-1", r.tenant, "")
	if got := l.names(3); got != "active s-1, peer_disconnected s-1, ended s-1" {
		t.Errorf("then %s", got)
	}
	if n, err := l.ends(); n != 0 || err != io.EOF { //nolint:errorlint // exactly that one is the good order
		t.Errorf("%d more events, and %v", n, err)
	}

	// An EventSource connects again, and is told to stop.
	request := r.request("GET", "/v1/sessions/s-1/events", r.tenant, http.NoBody)
	request.Header.Set("Last-Event-ID", l.last)
	if a := r.send(request); a.status != 204 || len(a.body) != 0 {
		t.Errorf("after the end: %d %s", a.status, a.body)
	}
	again := r.listen("/v1/sessions/s-1/events?last_event_id="+first.id, r.tenant, "")
	if got := again.names(3); got != "active s-1, peer_disconnected s-1, ended s-1" {
		t.Errorf("from the first on: %s", got)
	}
	if _, err := again.ends(); err != io.EOF { //nolint:errorlint // exactly that one is the good order
		t.Error(err)
	}
}

func TestSessionStreamWaitsForAnEndThatIsNotVisibleYet(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"s-1"}`)
	r.store.mu.Lock()
	r.store.sessions[0].State = berth.SessionEnded // its event's transaction is above the oldest one that runs
	r.store.mu.Unlock()
	l := r.listen("/v1/sessions/s-1/events", r.tenant, "1000-1")
	reads := r.store.reads.Load()
	r.store.happen("t-1", "s-1", "ended")
	if got := l.names(1); got != "ended s-1" {
		t.Errorf("got %s", got)
	}
	if _, err := l.ends(); err != io.EOF { //nolint:errorlint // exactly that one is the good order
		t.Error(err)
	}
	if reads == 0 {
		t.Error("nothing was read before the end came")
	}
}

func TestSessionStreamGoesOnWithTheNextSessionOfItsID(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"s-1"}`)
	r.call("DELETE", "/v1/sessions/s-1", r.tenant, "")
	l := r.listen("/v1/sessions/s-1/events", r.tenant, "")
	l.names(2)
	r.place(`{"id":"s-1"}`)
	if got := r.listen("/v1/sessions/s-1/events", r.tenant, l.last).names(1); got != "created s-1" {
		t.Errorf("got %s", got)
	}
}

func TestEverythingStreamsFromNowOrFromTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"before"}`)
	now := r.listen("/v1/events", r.tenant, "")
	if now.last != "1000-1" {
		t.Errorf("a client that heard nothing would return to %q", now.last)
	}
	start := r.listen("/v1/events?from=start", r.tenant, "")
	r.call("POST", "/v1/sessions", r.other, `{"id":"theirs"}`)
	r.place(`{"id":"after"}`)
	if got := now.names(1); got != "created after" {
		t.Errorf("from now: %s", got)
	}
	if got := start.names(2); got != "created before, created after" {
		t.Errorf("from the start: %s", got)
	}
	everybody := r.listen("/v1/events?from=start", r.operator, "")
	if got := everybody.names(3); got != "created before, created theirs, created after" {
		t.Errorf("an operator: %s", got)
	}
	theirs := r.listen("/v1/events?from=start&tenant=t-2", r.operator, "")
	if _, event := theirs.event(); event.SessionID != "theirs" || event.TenantID == nil || *event.TenantID != "t-2" {
		t.Errorf("of a tenant: %+v", event)
	}
	// An EventSource that reconnects sends both.
	if got := r.listen("/v1/events?from=start&last_event_id=0-0", r.operator, "1000-2").names(1); got != "created after" {
		t.Errorf("the header does not win: %s", got)
	}
	for _, last := range []string{"", "0-0"} {
		if got := r.listen("/v1/events?from=start&last_event_id="+last, r.operator, "").names(3); !strings.HasPrefix(got, "created before") {
			t.Errorf("last_event_id=%s: %s", last, got)
		}
	}
}

func TestLongHistoryComesInPages(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"s-1"}`)
	r.place(`{"id":"s-2"}`)
	for range 3*eventPage - 1 {
		r.store.happen("t-1", "s-1", "active")
	}
	l := r.listen("/v1/sessions/s-1/events", r.tenant, "")
	seen := map[string]bool{}
	for range 3 * eventPage {
		b, _ := l.event()
		seen[b.id] = true
	}
	if len(seen) != 3*eventPage {
		t.Errorf("%d different events", len(seen))
	}
	r.call("DELETE", "/v1/sessions/s-1", r.tenant, "")
	if got := l.names(1); got != "ended s-1" {
		t.Errorf("then %s", got)
	}
	// All of it was sent, over several pages, so nothing is left to send.
	request := r.request("GET", "/v1/sessions/s-1/events", r.tenant, http.NoBody)
	request.Header.Set("Last-Event-ID", l.last)
	if a := r.send(request); a.status != 204 {
		t.Errorf("after the end: %d", a.status)
	}
}

func TestStreamsAreRefusedLikeEveryCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	for path, status := range map[string]int{
		"/v1/sessions/none/events": 404, "/v1/sessions/a%2Fb/events": 400, "/v1/events?tenant=t-2": 403, "/v1/events?from=then": 400, "/v1/events?from=": 400,
		"/v1/sessions/x/events?tenant=t-2": 403,
	} {
		if a := r.call("GET", path, r.tenant, ""); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := r.call("GET", "/v1/sessions/x/events", r.operator, ""); a.status != 400 || (*a.problem(t).Errors)[0].Field != "tenant" {
		t.Errorf("operator without a tenant: %d %s", a.status, a.body)
	}
	if a := r.call("GET", "/v1/events", "", ""); a.status != 401 {
		t.Errorf("without a key: %d", a.status)
	}
	r.store.calls.Store(0)
	for _, last := range []string{"x", "1", "-", "1-", "-1", "1-2-3", "01-1", "1-01", "+1-1", "1 -1", "18446744073709551616-1", "1-9223372036854775808", "1-\u0661", "99999999999999999999999-1"} {
		for _, path := range []string{"/v1/events", "/v1/sessions/s-1/events"} {
			request := r.request("GET", path, r.tenant, http.NoBody)
			request.Header.Set("Last-Event-ID", last)
			r.refusedBy(r.send(request), last, "Last-Event-ID")
		}
	}
	r.refusedBy(r.call("GET", "/v1/events?last_event_id=x", r.tenant, ""), "x", "last_event_id")
	r.refusedBy(r.call("GET", "/v1/events?last_event_id=1-1&last_event_id=1-1", r.tenant, ""), "twice", "last_event_id")
	if a := r.call("HEAD", "/v1/events", r.tenant, ""); a.status != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", a.status, a.Header)
	}
}

func TestSilenceIsFilledAndMovesTheIDOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, s *store) {
		quick(c, s)
		c.StreamKeepAlive = 20 * time.Millisecond
	})
	r.place(`{"id":"s-1"}`)
	session := r.listen("/v1/sessions/s-1/events", r.tenant, "")
	session.event()
	if b := session.block(); b != (block{comment: "nothing new"}) {
		t.Errorf("a session's silence: %+v", b)
	}
	all := r.listen("/v1/events", r.tenant, "")
	r.call("POST", "/v1/sessions", r.other, `{"id":"theirs"}`)
	for b := all.block(); b.id != "1000-2"; b = all.block() {
		if b.comment != "nothing new" || b.id != "1000-1" || b.data != "" {
			t.Fatalf("the silence of all: %+v", b)
		}
	}
}

func TestQuietStreamsAskTheDatabaseOnceForAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"s-1"}`)
	if n := r.store.polls.Load(); n != 0 {
		t.Errorf("%d polls without a stream", n)
	}
	for range 8 {
		r.listen("/v1/events?from=start", r.tenant, "").event()
	}
	settled := func() (reads int64) {
		polls := r.store.polls.Load()
		testkit.EventuallyTrue(t, 5*time.Second, "the watcher polls", func() bool { return r.store.polls.Load() > polls+20 })
		return r.store.reads.Load()
	}
	settled()
	if before, after := settled(), settled(); before != after {
		t.Errorf("%d reads while nothing was new", after-before)
	}
	r.client.CloseIdleConnections()
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, s *store) {
		quick(c, s)
		c.Streams = 8
	})
	mine := []*listener{r.listen("/v1/events", r.tenant, ""), r.listen("/v1/events", r.tenant, "")}
	if a := r.call("GET", "/v1/events", r.tenant, ""); a.status != 503 || a.problem(t).Code != "unavailable" { // checkAnswer looks at Retry-After
		t.Errorf("a third of one tenant: %d %s", a.status, a.body)
	}
	for _, key := range []string{r.other, r.other, r.operator, r.operator} {
		r.listen("/v1/events", key, "")
	}
	third := r.key(auth.RoleTenant, "t-3")
	r.listen("/v1/events", third, "")
	r.listen("/v1/events", third, "")
	if a := r.call("GET", "/v1/events", r.key(auth.RoleTenant, "t-4"), ""); a.status != 503 {
		t.Errorf("a ninth: %d", a.status)
	}
	if a := r.call("GET", "/v1/sessions", r.tenant, ""); a.status != 200 {
		t.Errorf("other calls: %d", a.status)
	}
	mine[0].close()
	testkit.EventuallyTrue(t, 5*time.Second, "the place is free again", func() bool {
		leave, err := r.server.service.watcher.enter("t-1")
		if err == nil {
			leave()
		}
		return err == nil
	})
}

func TestStopEndsStreamsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"s-1"}`)
	all, session := r.listen("/v1/events", r.tenant, ""), r.listen("/v1/sessions/s-1/events", r.tenant, "")
	session.event()
	began := time.Now()
	stop(t, r.server)
	if took := time.Since(began); took > 5*time.Second { // milliseconds, on an idle machine
		t.Errorf("stopped after %v", took)
	}
	for _, l := range []*listener{all, session} {
		if n, err := l.ends(); n != 0 || err == nil {
			t.Errorf("%d events, then %v", n, err)
		}
	}
}

func TestStreamOfARevokedKeyGetsNothingMore(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	l := r.listen("/v1/events", r.tenant, "")
	r.store.mu.Lock()
	clear(r.store.keys)
	r.store.mu.Unlock()
	r.store.keyAge.Store(int64(time.Minute)) // what is remembered of it
	for _, x := range []string{"a", "b"} {
		r.store.mu.Lock()
		_, err := r.store.place(berth.Start{TenantID: "t-1", ID: x, Slots: 1})
		r.store.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.ends(); n != 0 || err != io.EOF { //nolint:errorlint // exactly that one is the good order
		t.Errorf("%d events, then %v", n, err)
	}
}

func TestStreamOutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, s *store) {
		quick(c, s)
		c.StreamKeepAlive = 20 * time.Millisecond
	})
	l := r.listen("/v1/events", r.tenant, "")
	r.store.setFail(fmt.Errorf("dial: %w", berth.ErrUnavailable))
	polls := r.store.polls.Load()
	testkit.EventuallyTrue(t, 5*time.Second, "the watcher polls", func() bool { return r.store.polls.Load() > polls+2 })
	if b := l.block(); b.comment == "" {
		t.Errorf("while it is away: %+v", b)
	}
	if a := r.call("GET", "/v1/events", r.tenant, ""); a.status != 503 {
		t.Errorf("a new stream: %d", a.status)
	}
	r.store.setFail(nil)
	r.place(`{"id":"s-1"}`)
	if got := l.names(1); got != "created s-1" {
		t.Errorf("got %s", got)
	}
}

func TestClientThatDoesNotReadIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, s *store) {
		quick(c, s)
		c.StreamWriteTimeout = 100 * time.Millisecond
	})
	r.place(`{"id":"s-1"}`)
	connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10) // the less it holds, the sooner the server is stuck
	}
	if _, err := fmt.Fprintf(connection, "GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", r.tenant); err != nil {
		t.Fatal(err)
	}
	open := r.server.service.watcher.places.taken
	testkit.EventuallyTrue(t, 5*time.Second, "the stream is open", func() bool { return open() == 1 })
	testkit.EventuallyTrue(t, time.Minute, "the stream is cut", func() bool {
		for range 10 * eventPage { // until the buffers of both ends are full
			r.store.happen("t-1", "s-1", "active")
		}
		return open() == 0
	})
}

func TestEventBetweenAReadAndTheSleepIsNotMissed(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.StreamPoll = time.Hour }) // looks are ours
	r.place(`{"id":"s-1"}`)
	w := r.server.service.watcher
	for _, path := range []string{"/v1/events", "/v1/sessions/s-1/events"} {
		l := r.listen(path, r.tenant, formatPosition(r.store.history[len(r.store.history)-1].Position))
		r.store.afterRead <- func() { // the stream's own position would be past it
			r.store.happen("t-1", "s-1", "active")
			w.look(t.Context())
		}
		r.store.happen("t-1", "s-1", "peer_connected")
		w.look(t.Context())
		// The stream may be at its first read or at its next: one event comes during it either way.
		if got := l.names(2); !strings.Contains(got, "peer_connected s-1") || !strings.Contains(got, "active s-1") {
			t.Errorf("%s: %s", path, got)
		}
		l.close()
	}
}

func TestStreamsMissNothingAndRepeatNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, quick)
	r.place(`{"id":"s-1"}`)
	r.store.happen("t-1", "s-1", "active")
	const total = 500
	var writer sync.WaitGroup
	writer.Go(func() {
		random := testkit.Rand(t)
		for range total {
			r.store.happen("t-1", "s-1", "active")
			if random.IntN(10) == 0 { // a reader may get here
				<-time.After(time.Millisecond)
			}
		}
	})
	defer writer.Wait()
	// A client that loses its connection again and again.
	random, last, seen := testkit.Rand(t), "1000-2", 0
	for seen < total {
		l := r.listen("/v1/events", r.tenant, last)
		for range min(1+random.IntN(50), total-seen) {
			b, _ := l.event()
			seen++
			if want := fmt.Sprintf("-%d", 2+seen); !strings.HasSuffix(b.id, want) {
				t.Fatalf("event %s, want the one that ends in %s", b.id, want)
			}
		}
		last = l.last
		l.close()
	}
}
