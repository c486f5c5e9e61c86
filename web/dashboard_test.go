package web_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
)

// openDashboard opens the page with the operator key in the fragment and waits for the first answer.
func openDashboard(t *testing.T, ctx context.Context, api *fakeAPI) {
	t.Helper()
	do(t, ctx, chromedp.Navigate(api.URL+"/#key="+operatorKey))
	until(t, ctx, `!document.getElementById('board').hidden`)
}

func harbour(t *testing.T) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	api.workers = []map[string]any{
		worker("w-1", "ready", 8, 3), worker("w-2", "draining", 4, 1), worker("w-10", "lost", 8, 0),
	}
	api.sessions = []map[string]any{
		session("s-a", "active", "w-1", 11), session("s-b", "assigned", "w-1", 12),
		session("s-c", "awaiting_rejoin", "", 9), session("s-d", "active", "w-2", 7), session("s-e", "ended", "", 3),
	}
	return api
}

func TestDashboardDrawsWhatTheAPIAnswers(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	openDashboard(t, ctx, harbour(t))

	cells := `Object.fromEntries([...document.querySelectorAll('.worker')].map((w) => [w.dataset.key,
		['used', 'free', 'closed'].map((use) => w.querySelectorAll('.cell[data-use=' + use + ']').length).join('/')]))`
	want := map[string]string{"w-1": "3/5/0", "w-2": "1/0/3", "w-10": "0/0/8"}
	if diff := cmp.Diff(want, eval[map[string]string](t, ctx, cells)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	rows := `[...document.querySelectorAll('#session-rows tr')].map((r) => r.firstChild.textContent)`
	if diff := cmp.Diff([]string{"s-a", "s-b", "s-c", "s-d"}, eval[[]string](t, ctx, rows)); diff != "" {
		t.Errorf("live sessions (-want +got):\n%s", diff)
	}
	if hash := eval[string](t, ctx, `location.href`); hash != eval[string](t, ctx, `location.origin + '/'`) {
		t.Errorf("the key stayed in the address: %s", hash)
	}

	eval[bool](t, ctx, `document.querySelector('.worker[data-key=w-1] .worker-name').click() ?? true`)
	highlighted := `[...document.querySelectorAll('tr[data-highlight]')].map((r) => r.firstChild.textContent)`
	if diff := cmp.Diff([]string{"s-a", "s-b"}, eval[[]string](t, ctx, highlighted)); diff != "" {
		t.Errorf("highlighted (-want +got):\n%s", diff)
	}

	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#filters [name=text]`), "s-d"))
	until(t, ctx, `document.querySelectorAll('#session-rows tr').length === 1`)
	noSidewaysScroll(t, ctx, 360)
}

func TestDashboardShowsWhatPlacementLooksAt(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := harbour(t)
	api.workers[0]["labels"] = map[string]string{"zone": "b", "gpu": strings.Repeat("a100", 15)}
	api.waiting = map[string]int{"": 2, "eu-west": 1, "us-east": 0}
	openDashboard(t, ctx, api)

	tile := `document.querySelector('.tile[data-key="Starts waiting"]')`
	until(t, ctx, tile+`.querySelector('.figure').textContent === '3'`)
	parts := eval[[]string](t, ctx, `[...`+tile+`.querySelectorAll('.parts span')].map((s) => s.textContent)`)
	if diff := cmp.Diff([]string{"2 for any region", "1 for eu-west"}, parts); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	card := `document.querySelector('.worker[data-key=w-1]')`
	labels := eval[[]string](t, ctx, `[...`+card+`.querySelectorAll('.labels span')].map((s) => s.textContent)`)
	if diff := cmp.Diff([]string{"gpu=" + strings.Repeat("a100", 15), "zone=b"}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}

	api.set(func() {
		suspect := maps.Clone(api.workers[0])
		suspect["suspect_reason"] = "6 sessions lost early"
		api.workers[0] = suspect
		api.waiting = nil
	})
	until(t, ctx, card+`.querySelector('.badge').textContent === 'suspect: 6 sessions lost early'`)
	until(t, ctx, `document.getElementById('log').textContent.includes('worker w-1 suspect: 6 sessions lost early')`)
	until(t, ctx, tile+`.querySelector('.figure').textContent === '0'`)
	noSidewaysScroll(t, ctx, 320)
}

func TestDashboardFollowsChangesAndSaysSo(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := harbour(t)
	openDashboard(t, ctx, api)
	eval[bool](t, ctx, `document.querySelector('.worker[data-key=w-1] .worker-name').focus() ?? true`)

	api.set(func() {
		api.workers[0] = worker("w-1", "ready", 8, 5)
		api.workers[1] = worker("w-2", "lost", 4, 0)
		moved := maps.Clone(api.sessions[3]) // a copy: the one before may be on its way out
		moved["generation"], moved["owner"] = 13, map[string]any{"worker_id": "w-1"}
		api.sessions[3] = moved
	})

	until(t, ctx, `document.getElementById('log').textContent.includes('session s-d moved to w-1, generation 13')`)
	until(t, ctx, `document.getElementById('log').textContent.includes('worker w-2: draining → lost')`)
	until(t, ctx, `document.querySelectorAll('.worker[data-key=w-1] .cell[data-use=used]').length === 5`)
	if focus := eval[string](t, ctx, `document.activeElement.textContent`); focus != "w-1" {
		t.Errorf("focus was lost to %q", focus)
	}
}

func TestDashboardAsksForAKey(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := harbour(t)
	do(t, ctx, chromedp.Navigate(api.URL+"/"))
	until(t, ctx, `!document.getElementById('gate').hidden && document.activeElement.id === 'gate-key'`)

	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#gate-key`), "wrong\r"))
	until(t, ctx, `document.getElementById('gate-problem').textContent === 'The API does not know this key.'`)

	eval[string](t, ctx, `document.getElementById('gate-key').value = ''`)
	do(t, ctx, chromedp.SendKeys(chromedp.CSS(`#gate-key`), operatorKey+"\r"))
	until(t, ctx, `!document.getElementById('board').hidden && document.getElementById('gate').hidden`)

	do(t, ctx, chromedp.Reload())
	until(t, ctx, `!document.getElementById('board').hidden`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`#forget`)))
	until(t, ctx, `!document.getElementById('gate').hidden && sessionStorage.length === 0`)
	noSidewaysScroll(t, ctx, 360)
}

func TestDashboardShowsRefusalsAndItsAge(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := harbour(t)
	openDashboard(t, ctx, api)
	api.set(func() {
		api.refusal = &problem{status: http.StatusServiceUnavailable, code: "unavailable", detail: "The database did not answer."}
	})
	until(t, ctx, `document.getElementById('notice').textContent ===
		'The database did not answer. (unavailable, request req-1)'`)
	until(t, ctx, `document.getElementById('freshness').textContent.startsWith('Stale: last answer')`)
	if workers := eval[int](t, ctx, `document.querySelectorAll('.worker').length`); workers != 3 {
		t.Errorf("%d workers shown, want the 3 last seen", workers)
	}

	api.set(func() { api.refusal = nil })
	until(t, ctx, `document.getElementById('notice').hidden`)
}

func TestDashboardDrainsAfterAsking(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := harbour(t)
	openDashboard(t, ctx, api)

	do(t, ctx, chromedp.Click(chromedp.CSS(`button[aria-label="Drain w-1"]`)))
	until(t, ctx, `document.getElementById('drain').open`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`#drain button[value=cancel]`)))
	until(t, ctx, `!document.getElementById('drain').open`)
	if calls := api.called(); len(calls) != 0 {
		t.Fatalf("cancel sent %v", calls)
	}

	do(t, ctx, chromedp.Click(chromedp.CSS(`button[aria-label="Drain w-1"]`)), chromedp.Click(chromedp.CSS(`#drain-confirm`)))
	until(t, ctx, `!document.getElementById('drain').open`)
	do(t, ctx, chromedp.Click(chromedp.CSS(`button[aria-label="Undrain w-2"]`)), chromedp.Click(chromedp.CSS(`#drain-confirm`)))
	until(t, ctx, `!document.getElementById('drain').open`)
	want := []string{`POST /v1/workers/w-1/drain {"deadline_seconds":3600}`, `DELETE /v1/workers/w-2/drain null`}
	if diff := cmp.Diff(want, api.called()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestDashboardIsUsefulWhenEmpty(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := newFakeAPI(t)
	api.workers, api.sessions = []map[string]any{}, []map[string]any{}
	openDashboard(t, ctx, api)
	until(t, ctx, `!document.getElementById('no-workers').hidden && !document.getElementById('no-sessions').hidden`)
	until(t, ctx, `document.getElementById('session-command').textContent.includes('curl -X POST ' + location.origin + '/v1/sessions')`)
	noSidewaysScroll(t, ctx, 360)
}

func TestDashboardCopesWithTenThousandSlots(t *testing.T) {
	t.Parallel()
	ctx := openTab(t)
	api := newFakeAPI(t)
	api.workers = []map[string]any{worker("w-big", "ready", 10_000, 6_250), worker("w-mid", "ready", 128, 100)}
	long := strings.Repeat("x", 128) // the longest id
	api.sessions = []map[string]any{session(long, "active", "w-"+long[2:], 1)}
	openDashboard(t, ctx, api)
	if cells := eval[int](t, ctx, `document.querySelectorAll('.worker .cell').length`); cells != 128 {
		t.Errorf("%d cells drawn, want those of w-mid only", cells)
	}
	bar := eval[string](t, ctx, `document.querySelector('.worker[data-key=w-big] .slot-bar span').style.getPropertyValue('--share')`)
	if bar != "62.5%" {
		t.Errorf("bar shows %s, want 62.5%%", bar)
	}
	until(t, ctx, `document.querySelector('.worker[data-key=w-big] .slots').textContent === '6,250 of 10,000 slots used, 3,750 free'`)
	noSidewaysScroll(t, ctx, 360)
}
