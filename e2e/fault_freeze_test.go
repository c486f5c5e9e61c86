package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// probe asks a health endpoint as a balancer does.
type probe struct {
	status int
	took   time.Duration
}

func ask(t testing.TB, url string) (probe, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	answer, err := exchange(request)
	return probe{answer.status, time.Since(began)}, err
}

// within is how soon a health endpoint must answer.
const within = 2 * time.Second

// answers checks that an endpoint answers with the status in time, and returns how long it took.
func answers(t testing.TB, url string, status int) time.Duration {
	t.Helper()
	p, err := ask(t, url)
	if err != nil || p.status != status || p.took > within {
		t.Errorf("%s: %d after %v, %v; want %d within %v", url, p.status, p.took, err, status, within)
	}
	return p.took
}

// TestScenario_F06_FrozenPostgresFailsReadinessOnly pauses the database, as O18 does. Each API process says within two
// seconds that it is not ready, and goes on living; when the database is back, all is as before.
func TestScenario_F06_FrozenPostgresFailsReadinessOnly(t *testing.T) {
	t.Parallel()
	frozenPostgres(t, false)
}

// TestScenario_O18_HealthIsBoundedWithAFrozenPostgresAndABusyPool is the same while every connection of the pool is taken
// by a call that hangs.
func TestScenario_O18_HealthIsBoundedWithAFrozenPostgresAndABusyPool(t *testing.T) {
	t.Parallel()
	frozenPostgres(t, true)
}

func frozenPostgres(t *testing.T, busy bool) {
	t.Helper()
	const looks = 4
	c := newCity(t, cityPlan{
		apis: 1, workers: 2, slots: 20, worker: shortLease, api: append([]string{"BERTH_DATABASE_POOL_SIZE=2"}, shortLease[0]),
	})
	held := c.holdSessions(t, 3)
	before := c.mustOwners(t)
	at := c.apis[0].url

	thaw := c.freezePostgres(t)
	frozen := time.Now()
	var calls sync.WaitGroup
	if busy {
		c.hangingCalls(t, &calls)
	}
	var slowest time.Duration
	for range looks {
		slowest = max(slowest, answers(t, at+"/readyz", http.StatusServiceUnavailable))
		slowest = max(slowest, answers(t, at+"/livez", http.StatusOK))
		slowest = max(slowest, answers(t, at+"/metrics", http.StatusOK))
	}
	calls.Wait()
	after(time.Until(frozen.Add(2 * shortTerm)))
	slowest = max(slowest, answers(t, at+"/readyz", http.StatusServiceUnavailable))
	thaw()
	thawed := time.Now()
	eventually(t, func() error {
		if p, err := ask(t, at+"/readyz"); err != nil || p.status != http.StatusOK {
			return fmt.Errorf("/readyz: %d, %w", p.status, err)
		}
		return nil
	})
	t.Logf("frozen for %.1f s: the slowest health check took %.2f s; ready %.2f s after it", thawed.Sub(frozen).Seconds(),
		slowest.Seconds(), time.Since(thawed).Seconds())
	eventually(t, func() error {
		if r := c.call(t, "POST", "/v1/sessions", `{"id":"afterwards"}`); r.status != 201 && r.status != 200 {
			return fmt.Errorf("start: %d %s", r.status, r.body)
		}
		return nil
	})
	c.ticked(t, settled)
	c.kept(t, before)
	allOpen(t, held...)
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	c.nobodyEnded(t)
}

// hangingCalls makes more calls than the pool has connections. Each must be answered with 503 in the end.
func (c *city) hangingCalls(t testing.TB, running *sync.WaitGroup) {
	t.Helper()
	const calls = 20
	for i := range calls {
		// starts share connections, reads do not
		request := newRequest(t, "GET", c.APIURL+"/v1/sessions", c.key, nil)
		if i%2 == 0 {
			request = newRequest(t, "POST", c.APIURL+"/v1/sessions", c.key, strings.NewReader(fmt.Sprintf(`{"id":"hangs-%d"}`, i)))
		}
		running.Go(func() {
			began := time.Now()
			answer, err := exchange(request)
			if err != nil || answer.status != http.StatusServiceUnavailable || answer.header.Get("Retry-After") == "" {
				t.Errorf("%s on a frozen database: %d after %v, %v: %s", request.Method, answer.status, time.Since(began), err, answer.body)
			}
		})
	}
}
