package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	sdk "github.com/berthdev/berth/sdk/go"
)

var quarters atomic.Int64

// quarter is a part of a stack that one test has to itself: a tenant and the region that its sessions go to.
type quarter struct {
	*stack

	tenant string
	region string
	key    string // of the tenant
}

// newQuarter makes a tenant with a key and a region without workers. quota is the most live sessions; nil: no quota.
func newQuarter(t testing.TB, s *stack, quota *int) *quarter {
	t.Helper()
	n := quarters.Add(1)
	q := &quarter{stack: s, tenant: fmt.Sprintf("t-%d", n), region: fmt.Sprintf("r-%d", n)}
	ctx := t.Context()
	if err := s.store.SetRegion(ctx, berth.Region{ID: q.region}); err != nil {
		t.Fatalf("make a region: %v", err)
	}
	err := s.store.SetTenant(ctx, berth.Tenant{ID: q.tenant, DefaultRegion: q.region, MaxConcurrentSessions: quota})
	if err != nil {
		t.Fatalf("make a tenant: %v", err)
	}
	q.key = q.newKey(t, auth.RoleTenant, q.tenant)
	return q
}

func (s *stack) newKey(t testing.TB, role auth.Role, tenant string) string {
	t.Helper()
	plaintext, record, err := auth.GenerateKey(role)
	if err != nil {
		t.Fatalf("generate a key: %v", err)
	}
	record.TenantID = tenant
	if err := s.store.CreateKey(t.Context(), record); err != nil {
		t.Fatalf("store a key: %v", err)
	}
	return plaintext
}

// call makes a request to the stack's API with the tenant's key.
func (q *quarter) call(t testing.TB, method, path, body string) reply {
	t.Helper()
	return call(t, method, q.APIURL+path, q.key, body)
}

// operate makes a request with the operator's key.
func (q *quarter) operate(t testing.TB, method, path, body string) reply {
	t.Helper()
	return call(t, method, q.APIURL+path, q.OperatorKey, body)
}

// place starts a session and returns its placement.
func (q *quarter) place(t testing.TB, body string) placement {
	t.Helper()
	r := q.call(t, "POST", "/v1/sessions", body)
	if r.status != 201 {
		t.Fatalf("POST /v1/sessions %s: %d %s", body, r.status, r.body)
	}
	return parse[placement](t, r)
}

// sessions counts the tenant's session rows, whatever their state.
func (q *quarter) sessions(t testing.TB) int {
	t.Helper()
	return query[int](t, q.stack, "select count(*) from berth.sessions where tenant_id = $1", q.tenant)
}

// used counts the taken slots of the region.
func (q *quarter) used(t testing.TB) int {
	t.Helper()
	return query[int](t, q.stack, "select count(*) from berth.slots where region = $1 and session is not null", q.region)
}

// client is the Go client with the tenant's key.
func (q *quarter) client(t testing.TB) *sdk.Client {
	t.Helper()
	c, err := sdk.New(sdk.Config{URL: q.APIURL, APIKey: q.key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// workerProcess is a `berth worker` that a test started.
type workerProcess struct {
	*process

	id       string
	instance berth.Instance
}

// startWorker starts a worker of the region and waits until it takes sessions. It is stopped when the test ends.
func (q *quarter) startWorker(t testing.TB, id string, slots int, settings ...string) *workerProcess {
	t.Helper()
	w := q.launchWorker(t, id, slots, settings...)
	q.awaitReady(t, w, 0)
	return w
}

// launchWorker starts a worker and does not wait for it.
func (q *quarter) launchWorker(t testing.TB, id string, slots int, settings ...string) *workerProcess {
	t.Helper()
	settings = append([]string{"BERTH_REGION=" + q.region, fmt.Sprintf("BERTH_WORKER_SLOTS=%d", slots)}, settings...)
	return q.launchWorkerWith(t, id, settings...)
}

// launchWorkerWith starts a worker on loopback with free ports. It is told nothing of regions and slots.
func (q *quarter) launchWorkerWith(t testing.TB, id string, settings ...string) *workerProcess {
	t.Helper()
	p, err := startProcess(q.dir, append([]string{
		"BERTH_DATABASE_URL=" + q.DatabaseURL,
		"BERTH_WORKER_ID=" + id,
		"BERTH_SIGNALING_LISTEN=127.0.0.1:0",
		"BERTH_CONTROL_LISTEN=127.0.0.1:0",
		"BERTH_MEDIA_LISTEN=127.0.0.1:0",
		"BERTH_DRAIN_DEADLINE=1s",
	}, settings...), "worker")
	if err != nil {
		t.Fatal(err)
	}
	w := &workerProcess{process: p, id: id}
	t.Cleanup(func() {
		if !w.ended() {
			w.signal(syscall.SIGCONT) // the test may have ended while it was paused
			if err := w.stop(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
		if race := w.race(); race != "" {
			t.Errorf("%s: data race:\n%s", w.id, race)
		}
		w.showAfterFailure(t)
	})
	return w
}

// awaitReady waits until an instance of the worker that is newer than the one given takes sessions.
func (q *quarter) awaitReady(t testing.TB, w *workerProcess, newerThan berth.Instance) {
	t.Helper()
	eventually(t, func() error {
		if w.ended() {
			return finalError{fmt.Errorf("worker %s ended: %w: %s", w.id, w.err, w.errors())}
		}
		row, err := q.store.Worker(t.Context(), w.id)
		if err != nil {
			return fmt.Errorf("worker %s has not registered: %w", w.id, err)
		}
		if row.State != berth.WorkerReady || row.Instance <= newerThan {
			return fmt.Errorf("worker %s is not ready: %+v", w.id, row)
		}
		w.instance = row.Instance
		return nil
	})
}

// worker reads a worker that has registered.
func (q *quarter) worker(t testing.TB, id string) berth.Worker {
	t.Helper()
	row, err := q.store.Worker(t.Context(), id)
	if err != nil {
		t.Fatalf("read worker %s: %v", id, err)
	}
	return row
}

// kill ends the worker as a crash would, and returns when the kernel has.
func (w *workerProcess) kill(t testing.TB) {
	t.Helper()
	w.signal(syscall.SIGKILL)
	if _, err := w.wait(); err != nil {
		t.Fatal(err)
	}
}

// name makes an id that no other test has.
func (q *quarter) name(parts ...string) string {
	return strings.Join(append([]string{q.region}, parts...), "-")
}
