package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// standIn registers a worker that has no process: its presence is the test's own, and its lease outlasts the test.
func (q *quarter) standIn(t testing.TB, id, region string, slots int) {
	t.Helper()
	ctx := t.Context()
	number, err := q.store.NextInstance(ctx)
	if err != nil {
		t.Fatal(err)
	}
	presence, err := q.store.Presence(ctx, number)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(q.store.Leave(detached(t), id, number), presence.Close(detached(t))); err != nil {
			t.Errorf("take %s away: %v", id, err)
		}
	})
	held, err := q.store.Register(ctx, berth.Registration{
		WorkerID: id, Instance: number, Region: region, Capacity: slots, SignalingURL: "ws://127.0.0.1:1/" + id,
		ControlURL: "http://127.0.0.1:1", Version: "test", Lease: time.Hour,
	})
	if err != nil || held {
		t.Fatalf("register %s: held %v, %v", id, held, err)
	}
	if err := q.store.Open(ctx, id, number); err != nil {
		t.Fatal(err)
	}
}

// launchAPI starts one more API process of the stack.
func (q *quarter) launchAPI(t testing.TB, settings ...string) (p *process, url string) {
	t.Helper()
	p, err := startProcess(q.dir, append([]string{"BERTH_DATABASE_URL=" + q.DatabaseURL, "BERTH_LISTEN=127.0.0.1:0"}, settings...), "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.ended() {
			if err := p.stop(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
		p.showAfterFailure(t)
	})
	if url, err = p.awaitURL(); err != nil {
		t.Fatal(err)
	}
	return p, url
}

// C08: an API process is killed amid starts. Whoever asks another one again gets the one placement, and soon.
func TestScenario_C08_KilledAPILeavesNoKeyInProgress(t *testing.T) {
	t.Parallel()
	const n = 40
	q := newQuarter(t, run.stack.get(t), nil)
	q.standIn(t, q.name("w"), q.region, n)
	victim, url := q.launchAPI(t)
	start := func(api string, i int) *http.Request {
		request := newRequest(t, "POST", api+"/v1/sessions", q.key, strings.NewReader(fmt.Sprintf(`{"metadata":{"n":%d}}`, i)))
		request.Header.Set("Idempotency-Key", fmt.Sprintf(`"key-%d"`, i))
		return request
	}
	first, retries := make([]*http.Request, n), make([]*http.Request, n)
	for i := range n {
		first[i], retries[i] = start(url, i), start(q.APIURL, i)
	}
	var all sync.WaitGroup
	var answered atomic.Int32
	for i := range n {
		all.Go(func() {
			if _, err := exchange(first[i]); err == nil && answered.Add(1) == n/4 {
				victim.signal(syscall.SIGKILL)
			}
		})
	}
	all.Wait()
	if _, err := victim.wait(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range n {
		r := send(t, retries[i])
		if r.status != 200 && r.status != 201 {
			t.Errorf("retry %d: %d %s", i, r.status, r.body)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the retries took %v", took)
	}
	if rows, used := q.sessions(t), q.used(t); rows != n || used != n {
		t.Errorf("%d sessions on %d slots for %d keys; %d were answered before the kill", rows, used, n, answered.Load())
	}
}

func TestScenario_C10_NoPlacementLandsAfterTheDrainReturned(t *testing.T) {
	t.Parallel()
	const n = 150
	q := newQuarter(t, run.stack.get(t), nil)
	q.standIn(t, q.name("a"), q.region, 2*n)
	q.standIn(t, q.name("b"), q.region, 2*n)
	before := q.place(t, `{"id":"before"}`)
	drained := make(chan time.Time, 1)
	drain := newRequest(t, "POST", q.APIURL+"/v1/workers/"+before.Owner.WorkerID+"/drain", q.OperatorKey,
		strings.NewReader(`{"deadline_seconds":3600}`))
	go func() {
		defer close(drained)
		if r, err := exchange(drain); err == nil && r.status == 200 {
			drained <- time.Now()
		}
	}()
	q.storm(t, n, "POST", func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"s-%d"}`, i) })
	at, ok := <-drained
	if !ok {
		t.Fatal("the drain failed")
	}
	// The database is on this machine, so its clock is ours.
	if late := query[int](t, q.stack, `select count(*) from berth.sessions where worker_id = $1 and placed_at > $2`,
		before.Owner.WorkerID, at); late > 0 {
		t.Errorf("%d of %d landed after the drain returned", late, n)
	}
	answers := q.storm(t, 30, "POST", func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"after-%d"}`, i) })
	for _, a := range answers {
		if got := parse[placement](t, a); a.status != 201 || got.Owner.WorkerID == before.Owner.WorkerID {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	r := q.call(t, "GET", "/v1/sessions/before", "")
	if got := parse[placement](t, r); got.Generation != before.Generation || got.Owner.WorkerID != before.Owner.WorkerID {
		t.Errorf("the session of before the drain: %s", r.body)
	}
}

func TestScenario_C11_DeadWorkerIsNeverPickedThoughItIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	w := q.startWorker(t, q.name("w"), 8)
	q.place(t, `{"id":"there"}`)
	q.drain(t, w.id, `{"deadline_seconds":3600}`)
	w.kill(t)
	eventually(t, func() error {
		if row := q.owner(t, "there"); row.state != "awaiting_rejoin" {
			return fmt.Errorf("the session of the killed worker is %v", row)
		}
		return nil
	})
	answers := q.storm(t, 100, "POST", func(i int) (string, string) {
		if i%2 == 0 {
			return "/v1/sessions", `{"id":"there"}` // a rejoin
		}
		return "/v1/sessions", fmt.Sprintf(`{"id":"s-%d"}`, i)
	})
	expect(t, "with the only worker dead", answers, map[string]int{"503 at_capacity": 100})
	hints := map[int]bool{}
	for _, a := range answers {
		seconds, _ := strconv.Atoi(a.header.Get("Retry-After")) // storm has checked that it is a number
		hints[seconds] = true
	}
	t.Logf("Retry-After: %d different values for 100 callers", len(hints))
}

func TestScenario_C15_SpillGoesInOrderAndNeverOverAWorkersSlots(t *testing.T) {
	t.Parallel()
	const slots = 6
	q := newQuarter(t, run.stack.get(t), nil)
	second, third := q.name("second"), q.name("third")
	for _, region := range []berth.Region{{ID: third}, {ID: second}, {ID: q.region, Spill: []string{second, third}}} {
		if err := q.store.SetRegion(t.Context(), region); err != nil {
			t.Fatal(err)
		}
	}
	for _, region := range []string{q.region, second, third} {
		q.standIn(t, region+"-w", region, slots)
	}
	for wave, region := range []string{q.region, second, third} {
		answers := q.storm(t, slots, "POST", func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"s-%d-%d"}`, wave, i) })
		expect(t, "wave "+region, answers, map[string]int{"201": slots})
		for _, a := range answers {
			if got := parse[placement](t, a); got.Region != region || got.Spilled != (wave > 0) {
				t.Errorf("wave %d: %s", wave, a.body)
			}
		}
		stay := q.storm(t, 9, "POST", func(i int) (string, string) {
			return "/v1/sessions", fmt.Sprintf(`{"id":"stay-%d-%d","spill":false}`, wave, i)
		})
		expect(t, "without spilling", stay, map[string]int{"503 at_capacity": 9})
	}
	over := q.storm(t, 30, "POST", func(i int) (string, string) { return "/v1/sessions", fmt.Sprintf(`{"id":"over-%d"}`, i) })
	expect(t, "when all is full", over, map[string]int{"503 at_capacity": 30})
	if rows := q.sessions(t); rows != 3*slots {
		t.Errorf("%d sessions on %d slots", rows, 3*slots)
	}
}

// C18: two connections are the fewest that the configuration allows. With one, see internal/postgres.
func TestScenario_C18_SmallPoolHangsNobody(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.standIn(t, q.name("w"), q.region, 20)
	_, url := q.launchAPI(t, "BERTH_DATABASE_POOL_SIZE=2")
	var requests []*http.Request
	for i := range 50 {
		id := fmt.Sprintf("s-%d", i%10)
		requests = append(requests,
			newRequest(t, "POST", url+"/v1/sessions", q.key, strings.NewReader(fmt.Sprintf(`{"id":%q}`, id))),
			newRequest(t, "DELETE", url+"/v1/sessions/"+id, q.key, nil))
		if i%5 == 0 {
			requests = append(requests, newRequest(t, "GET", url+"/readyz", "", nil))
		}
	}
	answers, errs := make([]reply, len(requests)), make([]error, len(requests))
	began := time.Now()
	var all sync.WaitGroup
	for i, request := range requests {
		all.Go(func() { answers[i], errs[i] = exchange(request) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d requests took %v", len(requests), took)
	}
	for i, a := range answers {
		a.check(t, requests[i])
		switch a.status {
		case 200, 201, 204, 404, 503:
		default:
			t.Errorf("%s %s: %d %s", requests[i].Method, requests[i].URL.Path, a.status, a.body)
		}
	}
}
