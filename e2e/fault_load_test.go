package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// loadPlan is what a load does. Zero values are defaults.
type loadPlan struct {
	clients int           // default 4
	timeout time.Duration // of one request; default more than an API process takes to answer
	keep    int           // every so many-th session of a client does not end; default: all end
}

// load is clients that start sessions and end them, one after another, until it is ended. Each repeats a call until it is
// answered for good, as the SDKs do, at one API process after another.
type load struct {
	loadPlan
	city   *city
	client *http.Client
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	starts  int
	retries int
	kept    map[string]placement // by id: those that do not end
	slowest time.Duration        // of an answer
	last    time.Time            // when a start succeeded
	errs    []error
}

// begin starts a load. It must be ended.
func (c *city) begin(t testing.TB, plan loadPlan) *load {
	t.Helper()
	plan.clients, plan.timeout = cmp.Or(plan.clients, 4), cmp.Or(plan.timeout, 12*time.Second)
	l := &load{
		loadPlan: plan, city: c, kept: map[string]placement{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: plan.clients}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	for i := range plan.clients {
		l.all.Go(func() { l.serve(ctx, i) })
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) stop() {
	l.cancel()
	l.all.Wait()
	l.client.CloseIdleConnections()
}

// serve is one client.
func (l *load) serve(ctx context.Context, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("load-%d-%d", number, n)
		err := l.start(ctx, number, id, l.keep > 0 && n%l.keep == 0)
		if err == nil && (l.keep == 0 || n%l.keep != 0) {
			_, err = l.until(ctx, number, "DELETE", "/v1/sessions/"+id, "", 204)
		}
		if err != nil && ctx.Err() == nil {
			l.note(func() { l.errs = append(l.errs, err) })
			return
		}
		pace(ctx, 20*time.Millisecond)
	}
}

// start starts one session and notes it.
func (l *load) start(ctx context.Context, number int, id string, keep bool) error {
	answer, err := l.until(ctx, number, "POST", "/v1/sessions", fmt.Sprintf(`{"id":%q}`, id), 201, 200)
	if err != nil {
		return err
	}
	var placed placement
	if err := json.Unmarshal([]byte(answer.body), &placed); err != nil || placed.Owner.WorkerID == "" {
		return fmt.Errorf("start of %s is answered without an owner: %s", id, answer.body)
	}
	l.note(func() {
		l.starts++
		l.last = time.Now()
		if keep {
			l.kept[id] = placed
		}
	})
	return nil
}

// until repeats a call until it has one of the statuses.
func (l *load) until(ctx context.Context, number int, method, path, body string, good ...int) (reply, error) {
	for attempt := number; ; attempt++ {
		began := time.Now()
		answer, err := l.once(ctx, l.city.apis[attempt%len(l.city.apis)].url+path, method, body)
		took := time.Since(began)
		l.note(func() { l.slowest = max(l.slowest, took) })
		if ctx.Err() != nil {
			return answer, ctx.Err()
		}
		if err == nil {
			if slices.Contains(good, answer.status) {
				return answer, nil
			}
			if answer.status != http.StatusServiceUnavailable || answer.header.Get("Retry-After") == "" {
				return answer, fmt.Errorf("%s %s: %d %s", method, path, answer.status, answer.body)
			}
		}
		l.note(func() { l.retries++ })
		pace(ctx, 100*time.Millisecond)
	}
}

func (l *load) once(ctx context.Context, at, method, body string) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Authorization", "Bearer "+l.city.key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := l.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(text), response.Close}, err
}

func (l *load) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// startedSince reports whether a start has succeeded that was answered after at.
func (l *load) startedSince(at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) > 0 {
		return finalError{errors.Join(l.errs...)}
	}
	if !l.last.After(at) {
		return fmt.Errorf("no start succeeded; %d before, %d retries", l.starts, l.retries)
	}
	return nil
}

// lastStart is when a start succeeded.
func (l *load) lastStart() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// warm waits until the load runs.
func (l *load) warm(t testing.TB) {
	t.Helper()
	const enough = 20
	eventually(t, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.starts < enough {
			return fmt.Errorf("%d starts of %d: %w", l.starts, enough, errors.Join(l.errs...))
		}
		return nil
	})
}

// end stops the load, checks that nothing was refused for good, and says what there was.
func (l *load) end(t testing.TB) {
	t.Helper()
	l.stop()
	t.Logf("load: %d starts, %d retries, slowest answer %.2f s", l.starts, l.retries, l.slowest.Seconds())
	for _, err := range l.errs {
		t.Errorf("load: %v", err)
	}
}

// pace waits between calls of a client.
func pace(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// socket is a peer's connection that is kept alive. Its frames are kept until somebody waits for them.
type socket struct {
	placed talkPlacement
	ws     *websocket.Conn
	frames chan frame
	done   chan struct{}
	err    error     // why it ended; after done
	ended  time.Time // likewise
}

// mostFrames is how many frames of a socket may wait. Nobody waits for what comes beyond.
const mostFrames = 256

// holdSocket connects to a placement and keeps the connection until the test ends.
func holdSocket(t testing.TB, placed talkPlacement) *socket {
	t.Helper()
	talking := talkAt(t, placed)
	return hold(t, talking)
}

// hold keeps a talker's connection alive. Nobody else may read from it then.
func hold(t testing.TB, c *talker) *socket {
	t.Helper()
	s := &socket{placed: c.placed, ws: c.ws, frames: make(chan frame, mostFrames), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { // ends with the connection, for which the cleanup waits
		defer close(s.done)
		s.err = s.read(ctx)
		s.ended = time.Now()
	}()
	t.Cleanup(func() {
		cancel()
		_ = s.ws.CloseNow() // it ends the reader
		<-s.done
	})
	return s
}

func (s *socket) read(ctx context.Context) error {
	for {
		_, data, err := s.ws.Read(ctx)
		if err != nil {
			return err
		}
		var f frame
		if err := json.Unmarshal(data, &f); err != nil {
			return err
		}
		if f["type"] == "ping" {
			if err := s.ws.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)); err != nil {
				return err
			}
			continue
		}
		select {
		case s.frames <- f:
		default:
		}
	}
}

// open reports an error if the connection has ended.
func (s *socket) open() error {
	select {
	case <-s.done:
		return finalError{fmt.Errorf("the socket of %s ended: %w", s.placed.ID, s.err)}
	default:
		return nil
	}
}

// await waits for a frame of this type and skips others.
func (s *socket) await(t testing.TB, kind string) frame {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case f := <-s.frames:
			if f["type"] == kind {
				return f
			}
		case <-s.done:
			t.Fatalf("%s %s waited for %s: %v", s.placed.ID, s.placed.Peer.ID, kind, s.err)
		case <-timer.C:
			t.Fatalf("%s %s: no %s within %v", s.placed.ID, s.placed.Peer.ID, kind, patience)
		}
	}
}

// say sends a frame.
func (s *socket) say(t testing.TB, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatalf("send: %v", err)
	}
}

// talk has a offer and b answer, through whatever lies between.
func talk(t testing.TB, a, b *socket, sdp string) {
	t.Helper()
	pass(t, a, b, "offer", sdp)
	pass(t, b, a, "answer", "to "+sdp)
}

// pass sends a description until it was passed on: an error frame says that it may not have been. An offer that was open when
// topics were lost is repeated, so others may come before it.
func pass(t testing.TB, from, to *socket, kind, sdp string) {
	t.Helper()
	text := fmt.Sprintf(`{"type":%q,"sdp":%q}`, kind, sdp)
	from.say(t, text)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case f := <-to.frames:
			if f["type"] == kind && f["sdp"] == sdp {
				return
			}
			t.Logf("passed over %v", f)
		case f := <-from.frames:
			if f["type"] == "error" {
				t.Logf("again after %v", f)
				from.say(t, text)
			}
		case <-from.done:
			t.Fatalf("%s %s sent its %s: %v", from.placed.ID, from.placed.Peer.ID, kind, from.err)
		case <-to.done:
			t.Fatalf("%s %s waited for %s: %v", to.placed.ID, to.placed.Peer.ID, kind, to.err)
		case <-timer.C:
			t.Fatalf("%s %s: no %s within %v", to.placed.ID, to.placed.Peer.ID, kind, patience)
		}
	}
}

// holdSessions starts media sessions and holds a socket of each.
func (c *city) holdSessions(t testing.TB, n int) []*socket {
	t.Helper()
	var held []*socket
	for i := range n {
		r := c.call(t, "POST", "/v1/sessions", fmt.Sprintf(`{"id":"live-%d"}`, i))
		if r.status != 201 {
			t.Fatalf("start session %d: %d %s", i, r.status, r.body)
		}
		held = append(held, holdSocket(t, parse[talkPlacement](t, r)))
	}
	return held
}

// holdCall starts a call and holds the sockets of its two peers.
func (c *city) holdCall(t testing.TB, id string) (a, b *socket) {
	t.Helper()
	a, b = hold(t, c.joinCall(t, id, "a")), hold(t, c.joinCall(t, id, "b"))
	a.await(t, "peer-connected")
	talk(t, a, b, "first")
	return a, b
}

// allOpen checks that no connection ended.
func allOpen(t testing.TB, held ...*socket) {
	t.Helper()
	for _, s := range held {
		if err := s.open(); err != nil {
			t.Error(err)
		}
	}
}
