package signaling

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/berthdev/berth/internal/testkit/chromium"
)

// pageClose is what a page sees of the end of a connection.
type pageClose struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
	Clean  bool   `json:"clean"`
}

// connectPage opens a socket in the page and names it. It answers pings if told to.
const connectPage = `window.connect = (name, url, token, polite) => {
	const socket = new WebSocket(url, ["berth.v1", "token." + token]);
	const state = window[name] = {socket, seen: [], closed: null};
	socket.onmessage = (event) => {
		const frame = JSON.parse(event.data);
		state.seen.push(frame.type);
		if (frame.type === "ping" && polite) socket.send('{"type":"pong"}');
	};
	socket.onclose = (event) => { state.closed = {code: event.code, reason: event.reason, clean: event.wasClean}; };
}`

// A page sees why its connection ended: a planned restart with the time to come back, and what was wrong with it.
func TestPageSeesRestartAndOverloadWithTheirReasons(t *testing.T) {
	t.Parallel()
	browser := chromium.New(chromium.Config{})
	t.Cleanup(browser.Close)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<!doctype html><title>page</title><script>%s</script>", connectPage)
	}))
	t.Cleanup(site.Close)
	r := newServer(t, Config{
		AllowedOrigins: []string{site.URL}, PingInterval: 500 * time.Millisecond, PongTimeout: 20 * time.Second, JoinTimeout: 3 * time.Second,
		QueueAge: time.Second, QueueBytes: 8 << 20,
	})
	tab := browser.Open(t, 2*time.Minute)
	chromium.Do(t, tab, chromedp.Navigate(site.URL))
	page := &pageRig{t: t, rig: r, tab: tab}

	page.connect("silent", "a", false)
	if got := page.closed("silent"); got.Code != int(CloseTryLater) || got.Reason != reasonSilent || !got.Clean {
		t.Errorf("a silent page sees %+v", got)
	}

	page.connect("slow", "b", true)
	page.stall("slow", "b")
	if got := page.closed("slow"); got.Code != int(CloseTryLater) || got.Reason != reasonSlow {
		t.Errorf("a slow page sees %+v", got)
	}

	page.connect("polite", "c", true)
	r.hub.DropAll(Fate{Restart: true, Retry: time.Minute})
	if got := page.closed("polite"); got.Code != int(CloseRestart) || !strings.HasPrefix(got.Reason, "retry_ms=") || !got.Clean {
		t.Errorf("a page on a worker that restarts sees %+v", got)
	}
}

// pageRig drives the sockets of one page.
type pageRig struct {
	t   *testing.T
	rig *rig
	tab context.Context
}

func (p *pageRig) connect(name, peer string, polite bool) {
	p.t.Helper()
	chromium.Eval[*int](p.t, p.tab, fmt.Sprintf(`connect(%q, %q, %q, %v), null`, name, p.rig.url("s-1"), token(held(1), "s-1", peer), polite))
	chromium.Until(p.t, p.tab, patience, fmt.Sprintf(`%s.seen.includes("welcome")`, name))
}

func (p *pageRig) closed(name string) pageClose {
	p.t.Helper()
	chromium.Until(p.t, p.tab, 2*patience, name+".closed !== null")
	return chromium.Eval[pageClose](p.t, p.tab, name+".closed")
}

// stall keeps the page busy, so that it takes nothing, while it is sent more than the kernel holds.
func (p *pageRig) stall(name, peer string) {
	p.t.Helper()
	chromium.Eval[*int](p.t, p.tab, fmt.Sprintf(`%s.socket.send('{"type":"offer","sdp":"v=0"}'), null`, name))
	chromium.Until(p.t, p.tab, patience, fmt.Sprintf(`%s.seen.includes("answer")`, name))
	p.rig.media.mu.Lock()
	events := p.rig.media.events[peer]
	p.rig.media.mu.Unlock()
	chromium.Eval[*int](p.t, p.tab, `setTimeout(() => { const end = performance.now() + 4000; while (performance.now() < end); }, 0), null`)
	p.rig.hub.mu.Lock()
	sender := p.rig.hub.sessions[1].peers[peer].sender
	p.rig.hub.mu.Unlock()
	big := strings.Repeat("x", 100<<10)
	eventually(p.t, "the slow page is being closed", func() bool {
		events.Offer(big)
		_, closing := sender.closed()
		return closing
	})
}
