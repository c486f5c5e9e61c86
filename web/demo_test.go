package web_test

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
)

//go:embed testdata/loopback.js
var loopback string

// TestDemoGetsItsSessionBackAfterAKill runs real WebRTC inside one page: the workers are PeerConnections of that page.
func TestDemoGetsItsSessionBackAfterAKill(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := newFakeAPI(t)
	do(t, ctx, beforePage(loopback), chromedp.Navigate(api.URL+"/demo?autostart=1&source=canvas&handler=echo"))

	until(t, ctx, `berthDemo.framesDecoded > 5 && berthDemo.audioPacketsReceived > 5`)
	until(t, ctx, `berthDemo.state === 'connected' && berthDemo.owner === 'w-1' && berthDemo.generation === 1`)
	eval[bool](t, ctx, `[...loopback.open].forEach((socket) => socket.ping()) ?? true`)
	until(t, ctx, `[...loopback.open][0].received.includes('pong')`)

	do(t, ctx, chromedp.Click(chromedp.CSS(`#kill`)))
	until(t, ctx, `berthDemo.history.some(({ type }) => type === 'kill')`)
	if diff := cmp.Diff([]string{`POST /demo/kill {"worker_id":"w-1"}`}, api.called()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	eval[bool](t, ctx, `loopback.kill('w-1') ?? true`)

	// The frames of the lost worker must not pass for those of the next.
	until(t, ctx, `berthDemo.owner === 'w-2' && berthDemo.generation === 2 && berthDemo.framesDecoded > 5`)
	if last := eval[string](t, ctx, `berthDemo.history.findLast(({ type }) => type === 'media').owner`); last != "w-2" {
		t.Errorf("frames counted while the last first picture came from %s", last)
	}
	until(t, ctx, `document.getElementById('log').textContent.includes('Rejoined in ')`)
	want := []map[string]any{{"authorization": "Bearer again", "generation": 1.0, "lost": true}}
	if diff := cmp.Diff(want, api.rejoined()); diff != "" {
		t.Errorf("rejoins (-want +got):\n%s", diff)
	}
	noSidewaysScroll(t, ctx, 360)

	do(t, ctx, chromedp.Click(chromedp.CSS(`#end`)))
	until(t, ctx, `berthDemo.state === 'ended' && berthDemo.ended === 'left' && loopback.open.size === 0`)
}

func TestDemoSaysWhyItWasRefused(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := newFakeAPI(t)
	api.refusal = &problem{status: http.StatusServiceUnavailable, code: "at_capacity", detail: "No slot is free.", retryAfter: "4"}
	do(t, ctx, beforePage(loopback), chromedp.Navigate(api.URL+"/demo"), chromedp.Click(chromedp.CSS(`#start`)))
	until(t, ctx, `document.getElementById('notice').textContent === 'No slot is free. (at_capacity, request req-1)'`)
	until(t, ctx, `berthDemo.state === 'failed' && !document.getElementById('start').hidden`)
}

// closeCase is a close code on an open connection and the history of the session after it.
type closeCase struct {
	Code   int
	Reason string
	Want   []string
}

// TestSessionObeysCloseCodes breaks a connected session with every code of the protocol.
func TestSessionObeysCloseCodes(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	cases := []closeCase{
		{1000, "bye", []string{"stop left"}},
		{1001, "", []string{"reconnect", "rejoin lost"}},
		{1002, "", []string{"stop bad_message"}},
		{1006, "", []string{"reconnect", "rejoin lost"}},
		{1007, "", []string{"stop bad_message"}},
		{1009, "", []string{"stop bad_message"}},
		{1011, "", []string{"reconnect", "rejoin lost"}},
		{1012, "retry_ms=700", []string{"reconnect after 700", "reconnect after 700"}},
		{1012, "", []string{"reconnect within 8000", "reconnect within 8000"}},
		{1013, "slow", []string{"reconnect within 8000", "reconnect within 8000"}},
		{4400, "", []string{"stop bad_message"}},
		{4401, "", []string{"rejoin", "stop token_refused"}},
		{4404, "session ended: expired", []string{"stop session_ended"}},
		{4409, "", []string{"stop replaced"}},
		{4410, "moved", []string{"rejoin", "rejoin"}},
	}
	api := newFakeAPI(t)
	do(t, ctx, chromedp.Navigate(api.URL+"/assets/mark.svg"))
	for _, c := range cases {
		got := eval[[]string](t, ctx, closeScript(t, c))
		if diff := cmp.Diff(c.Want, got); diff != "" {
			t.Errorf("close %d %q twice (-want +got):\n%s", c.Code, c.Reason, diff)
		}
	}
}

// closeScript asks for the step after a close, and for the one after the same close again before media flowed.
func closeScript(t *testing.T, c closeCase) string {
	t.Helper()
	end, err := json.Marshal(map[string]any{"code": c.Code, "reason": c.Reason})
	if err != nil {
		t.Fatal(err)
	}
	return `(async () => {
		const { nextStep } = await import('/assets/recovery.js');
		const words = ({ action, why, lost, delay, window }) => [action, why, lost && 'lost',
			delay === undefined ? '' : 'after ' + delay, window === undefined ? '' : 'within ' + window].filter(Boolean).join(' ');
		const first = nextStep(` + string(end) + `, {});
		if (first.action === 'stop') return [words(first)];
		const second = nextStep(` + string(end) + `, { sameUrl: first.action === 'reconnect', freshToken: first.freshToken });
		return [words(first), words(second)];
	})()`
}

// errorScript connects to a worker that answers with one error frame, and returns why the connection ended.
const errorScript = `(async () => {
	const { Connection } = await import('/assets/connection.js');
	class Socket {
		constructor() { setTimeout(() => this.onmessage({ data: JSON.stringify({ type: 'error', code: CODE }) })); }
		close() {}
	}
	const placement = { owner: { signaling_url: 'ws://w-1/rtc' }, token: 't' };
	const connection = new Connection({ placement, limits: { welcome: 100 }, deps: { WebSocket: Socket } });
	connection.open();
	return (await connection.ended).reason;
})()`

func TestConnectionEndsWhenTheWorkerHasNoMediaForIt(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	do(t, ctx, chromedp.Navigate(newFakeAPI(t).URL+"/assets/mark.svg"))
	for code, want := range map[string]string{
		"bad_sdp": "bad_sdp", "media_failed": "media_failed",
		"bad_candidate": "no_welcome", // others will do
	} {
		if got := eval[string](t, ctx, strings.Replace(errorScript, "CODE", strconv.Quote(code), 1)); got != want {
			t.Errorf("%s: ended with %q, want %q", code, got, want)
		}
	}
}

// rejoinScript runs a session whose worker never lets it in, and returns its steps and its end.
const rejoinScript = `(async () => {
	const { BerthSession } = await import('/assets/session.js');
	class DeadSocket { constructor() { setTimeout(() => this.onclose({ code: 1006, reason: '' })); } close() {} }
	const place = async () => (await fetch('/demo/sessions', { method: 'POST' })).json();
	const deps = { fetch, WebSocket: DeadSocket };
	const session = new BerthSession({ place, deps, random: () => 0 });
	const seen = [];
	session.addEventListener('step', ({ detail }) => seen.push(detail.action + ' ' + detail.wait));
	session.addEventListener('placed', ({ detail }) => detail.generation === 2 && session.bye());
	session.addEventListener('state', ({ detail }) => detail.why && seen.push(detail.state + ' ' + detail.why));
	await session.run();
	return seen;
})()`

func TestSessionWaitsAsLongAsTheAPISays(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := newFakeAPI(t)
	api.answers = []func(http.ResponseWriter){
		func(w http.ResponseWriter) {
			refuse(w, problem{status: http.StatusServiceUnavailable, code: "at_capacity", retryAfter: "1"})
		},
	}
	do(t, ctx, chromedp.Navigate(api.URL+"/assets/mark.svg"))
	got := eval[[]string](t, ctx, rejoinScript)
	want := []string{"reconnect 0", "rejoin 0", "rejoin 1000", "ended left"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestSessionGivesUpOnAFinalWord(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	for _, c := range []struct {
		refusal problem
		end     string
	}{
		{problem{status: http.StatusGone, code: "session_ended"}, "ended session_ended"},
		{problem{status: http.StatusUnauthorized, code: "unauthenticated"}, "failed unauthenticated"},
		{problem{status: http.StatusNotFound, code: "not_found"}, "failed not_found"},
	} {
		api := newFakeAPI(t)
		api.answers = []func(http.ResponseWriter){func(w http.ResponseWriter) { refuse(w, c.refusal) }}
		do(t, ctx, chromedp.Navigate(api.URL+"/assets/mark.svg"))
		got := eval[[]string](t, ctx, rejoinScript)
		if diff := cmp.Diff([]string{"reconnect 0", "rejoin 0", c.end}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.refusal.code, diff)
		}
	}
}

func TestBackoffHasFullJitterWithinLimits(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	do(t, ctx, chromedp.Navigate(newFakeAPI(t).URL+"/assets/mark.svg"))
	got := eval[[]float64](t, ctx, `(async () => {
		const { fullJitter } = await import('/assets/recovery.js');
		const most = [0, 1, 2, 5, 6, 7, 1000].map((attempt) => fullJitter(attempt, () => 1));
		return [...most, fullJitter(3, () => 0)];
	})()`)
	if diff := cmp.Diff([]float64{500, 1000, 2000, 16_000, 30_000, 30_000, 30_000, 0}, got); diff != "" {
		t.Errorf("longest waits (-want +got):\n%s", diff)
	}
}
