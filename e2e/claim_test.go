package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// storm makes n requests at once, spread over three API processes, and returns the answers in order.
func (q *quarter) storm(t *testing.T, n int, method string, target func(i int) (path, body string)) []reply {
	t.Helper()
	run.stack.get(t)
	answers, errs := make([]reply, n), make([]error, n)
	requests := make([]*http.Request, n)
	for i := range n {
		path, body := target(i)
		requests[i] = newRequest(t, method, run.stack.apis[i%len(run.stack.apis)]+path, q.key, strings.NewReader(body))
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { answers[i], errs[i] = exchange(requests[i]) })
	}
	all.Wait()
	for i := range n {
		if errs[i] != nil {
			t.Fatalf("request %d: %v", i, errs[i])
		}
		answers[i].check(t, requests[i])
	}
	return answers
}

// tally counts answers by status and code.
func tally(t *testing.T, answers []reply) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, a := range answers {
		counts[strings.TrimSpace(fmt.Sprint(a.status, " ", a.code(t)))]++
	}
	return counts
}

// expect compares a tally with what it should be.
func expect(t *testing.T, what string, answers []reply, want map[string]int) {
	t.Helper()
	if got := tally(t, answers); fmt.Sprint(got) != fmt.Sprint(want) { // fmt sorts maps
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestScenario_C01_OneIdIsPlacedOnceAndOneSlotIsTakenOnce(t *testing.T) {
	t.Parallel()
	const n = 50
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), 4)
	answers := q.storm(t, n, "POST", func(int) (string, string) { return "/v1/sessions", `{"id":"same"}` })
	expect(t, "one id", answers, map[string]int{"201": 1, "200": n - 1})
	first := parse[placement](t, answers[0])
	for _, a := range answers {
		if got := parse[placement](t, a); got.Owner != first.Owner || got.Generation != first.Generation || got.ID != "same" {
			t.Errorf("one answer names %+v, another %+v", first, got)
		}
	}
	if used := q.used(t); used != 1 {
		t.Errorf("one id took %d slots", used)
	}

	one := newQuarter(t, q.stack, nil)
	one.startWorker(t, one.name("w"), 1)
	answers = one.storm(t, n, "POST", func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"s-%d"}`, i) })
	expect(t, "one slot", answers, map[string]int{"201": 1, "503 at_capacity": n - 1})
	if used, rows := one.used(t), one.sessions(t); used != 1 || rows != 1 {
		t.Errorf("%d slots taken and %d rows", used, rows)
	}
}

func TestScenario_C03_ExactlyAsManyStartsAsSlotsAllSucceed(t *testing.T) {
	t.Parallel()
	const slots = 12
	q := newQuarter(t, run.stack.get(t), nil)
	first, second := q.launchWorker(t, q.name("a"), slots/2), q.launchWorker(t, q.name("b"), slots/2)
	q.awaitReady(t, first, 0)
	q.awaitReady(t, second, 0)
	fill := func(n int, round string) []reply {
		t.Helper()
		return q.storm(t, n, "POST", func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"%s-%d"}`, round, i) })
	}
	empty := func(n int, round string) {
		t.Helper()
		answers := q.storm(t, n, "DELETE", func(i int) (string, string) { return fmt.Sprintf("/v1/sessions/%s-%d", round, i), "" })
		expect(t, "deletes", answers, map[string]int{"204": n})
	}
	expect(t, "as many as slots", fill(slots, "free"), map[string]int{"201": slots})
	empty(slots, "free")

	// somebody in psql holds the row of one worker: claims lock slots, so nothing changes
	release := q.hold(t, "select from berth.workers where id = $1 for update", first.id)
	expect(t, "with the row of a worker held", fill(slots, "held"), map[string]int{"201": slots})
	release()
	empty(slots, "held")

	// the row of one slot: the others go at once
	release = q.hold(t, "select from berth.slots where worker_id = $1 and ordinal = 1 for update", second.id)
	began := time.Now()
	expect(t, "with the row of a slot held", fill(slots-1, "rest"), map[string]int{"201": slots - 1})
	t.Logf("%d starts beside a held slot took %.2f s", slots-1, time.Since(began).Seconds())
	release()
	empty(slots-1, "rest")
}

// hold runs a locking query in a transaction that stays open until release.
func (q *quarter) hold(t *testing.T, sql string, args ...any) (release func()) {
	t.Helper()
	tx, err := q.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	release = func() { once.Do(func() { _ = tx.Rollback(detached(t)) }) } // nothing was written
	t.Cleanup(release)
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return release
}

func TestScenario_C05_QuotaHoldsAgainstParallelStarts(t *testing.T) {
	t.Parallel()
	const n, quota = 100, 5
	limit := quota
	q := newQuarter(t, run.stack.get(t), &limit)
	q.startWorker(t, q.name("w"), 40)
	neighbor := newQuarter(t, q.stack, nil)
	neighbor.startWorker(t, neighbor.name("w"), 4)

	start := func(round int) func(int) (string, string) {
		return func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"s-%d-%d"}`, round, i) }
	}
	answers := q.storm(t, n, "POST", start(0))
	expect(t, "quota", answers, map[string]int{"201": quota, "429 concurrent_sessions": n - quota})
	if live := q.live(t); live != quota {
		t.Errorf("%d sessions live", live)
	}
	if got := neighbor.place(t, `{}`); got.Region != neighbor.region {
		t.Errorf("the neighbor got %+v", got)
	}

	// deletes between: as many starts pass as sessions ended
	for round := 1; round <= 3; round++ {
		var ended int
		for i := range n {
			if ended < 2 && answers[i].status == 201 {
				ended++
				if r := q.call(t, "DELETE", "/v1/sessions/"+parse[placement](t, answers[i]).ID, ""); r.status != 204 {
					t.Fatalf("delete: %d %s", r.status, r.body)
				}
			}
		}
		answers = q.storm(t, n, "POST", start(round))
		expect(t, fmt.Sprintf("round %d", round), answers, map[string]int{"201": 2, "429 concurrent_sessions": n - 2})
		if live := q.live(t); live != quota {
			t.Errorf("round %d: %d sessions live", round, live)
		}
	}
}

// TestQuotaRefusalSaysWhetherWaitingHelps: a session that nobody connected to ends by itself, one with a peer does not.
func TestQuotaRefusalSaysWhetherWaitingHelps(t *testing.T) {
	t.Parallel()
	limit := 1
	q := newQuarter(t, run.stack.get(t), &limit)
	q.startWorker(t, q.name("w"), 4)
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("s"), Handler: "play"})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(retryable bool) {
		t.Helper()
		r := q.call(t, "POST", "/v1/sessions", `{}`)
		wait, err := strconv.Atoi(r.header.Get("Retry-After"))
		if r.status != 429 || r.code(t) != "concurrent_sessions" || parse[problem](t, r).Retryable != retryable {
			t.Errorf("%d %s, want retryable %v", r.status, r.body, retryable)
		}
		if said := err == nil && wait >= 1 && wait <= 60; said != retryable {
			t.Errorf("Retry-After %q, want retryable %v", r.header.Get("Retry-After"), retryable)
		}
	}
	refused(true)
	connect(t, client, placed, "play").flows(t)
	refused(false)
}

// live counts the tenant's live sessions, by rows.
func (q *quarter) live(t testing.TB) int {
	t.Helper()
	return query[int](t, q.stack, "select count(*) from berth.sessions where tenant_id = $1 and state <> 'ended'", q.tenant)
}

func TestScenario_C06_RepeatedReleaseGivesBackOneSlot(t *testing.T) {
	t.Parallel()
	const slots = 6
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w"), slots)
	stranger := newQuarter(t, q.stack, nil)
	q.place(t, `{"id":"short","ttl_seconds":10}`)
	for i := range slots - 1 {
		q.place(t, fmt.Sprintf(`{"id":"s-%d"}`, i))
	}

	if r := stranger.call(t, "DELETE", "/v1/sessions/s-0", ""); r.status != 404 {
		t.Errorf("another tenant's DELETE: %d %s", r.status, r.body)
	}
	answers := q.storm(t, 20, "DELETE", func(int) (string, string) { return "/v1/sessions/s-0", "" })
	expect(t, "one id deleted 20 times", answers, map[string]int{"204": 20})
	if used := q.used(t); used != slots-1 {
		t.Errorf("%d slots used after one of %d ended", used, slots)
	}
	if r := stranger.call(t, "DELETE", "/v1/sessions/s-0", ""); r.status != 404 {
		t.Errorf("another tenant's DELETE of what ended: %d %s", r.status, r.body)
	}

	// the reaper ends one, then DELETE comes late
	eventually(t, func() error {
		if row := q.owner(t, "short"); row.state != "ended" {
			return fmt.Errorf("session of 10 s is %v", row)
		}
		return nil
	})
	answers = q.storm(t, 5, "DELETE", func(int) (string, string) { return "/v1/sessions/short", "" })
	expect(t, "deleted after it expired", answers, map[string]int{"204": 5})

	answers = q.storm(t, 10, "POST", func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"again-%d"}`, i) })
	expect(t, "refill", answers, map[string]int{"201": 2, "503 at_capacity": 8})
	if used := q.used(t); used != slots {
		t.Errorf("%d slots used of %d", used, slots)
	}
}

// Each of the three API processes keeps half of its ten connections, so that a burst finds them open and their plans made.
func TestConnectionsAreOpenBeforeTheyAreNeeded(t *testing.T) {
	t.Parallel()
	s := run.stack.get(t)
	eventually(t, func() error {
		if n := query[int](t, s, "select count(*)::int from pg_stat_activity where application_name = 'berth api'"); n < 15 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
}
