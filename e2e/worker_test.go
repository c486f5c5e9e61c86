package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	sdk "github.com/berthdev/berth/sdk/go"
)

// TestScenario_C13_OldProcessWithTheSameIdIsRefused pauses a worker, has another process take its id, and wakes the first.
func TestScenario_C13_OldProcessWithTheSameIdIsRefused(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	short := []string{"BERTH_LEASE=2s", "BERTH_RENEW_INTERVAL=500ms"}
	id := q.name("w")
	first := q.startWorker(t, id, 4, short...)
	q.place(t, `{"id":"old"}`)
	first.signal(syscall.SIGSTOP)

	second := q.launchWorker(t, id, 4, short...)
	q.awaitReady(t, second, first.instance)
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("new")})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	if row := q.owner(t, placed.ID); row.instance != int(second.instance) {
		t.Errorf("placed on %v, want instance %d", row, second.instance)
	}
	if row := q.owner(t, "old"); row.state != "awaiting_rejoin" {
		t.Errorf("the session of the old instance is %v", row)
	}

	first.signal(syscall.SIGCONT)
	woke := time.Now()
	code, err := first.wait()
	if err != nil || code == 0 {
		t.Errorf("the old process ended with %d, %v; it must say that it was replaced", code, err)
	}
	t.Logf("the old process ended %.2f s after it woke", time.Since(woke).Seconds())
	peer.flows(t)
	if moves := peer.conn.Stats().Moves; moves != 0 {
		t.Errorf("the session of the new instance moved %d times", moves)
	}
	q.checkOwner(t, placed.ID, id, placed.Generation)
	if row := q.worker(t, id); row.Instance != second.instance || row.State != "ready" {
		t.Errorf("worker row: %+v", row)
	}
}

// TestAPausedWorkerLosesNothing stops the owner's process for longer than its lease, while media flows.
func TestAPausedWorkerLosesNothing(t *testing.T) {
	t.Parallel()
	const pause = 8 * time.Second
	q := newQuarter(t, run.stack.get(t), nil)
	owner := q.startWorker(t, q.name("w"), 2)
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("s")})
	if err != nil {
		t.Fatal(err)
	}
	q.startWorker(t, q.name("other"), 2) // it would take the session if anybody gave up
	peer := connectPatiently(t, client, placed)
	peer.flows(t)
	before, socket := q.owner(t, placed.ID), q.connection(t, placed.ID)

	owner.signal(syscall.SIGSTOP)
	paused := time.Now()
	eventually(t, func() error {
		if row := q.worker(t, owner.id); row.CordonedReason == "" {
			return fmt.Errorf("the paused worker is not cordoned: %+v", row)
		}
		return nil
	})
	t.Logf("cordoned after %.1f s", time.Since(paused).Seconds())
	timer := time.NewTimer(time.Until(paused.Add(pause)))
	defer timer.Stop()
	<-timer.C
	owner.signal(syscall.SIGCONT)
	woke := time.Now()
	peer.flows(t)
	t.Logf("media is back %.2f s after waking", time.Since(woke).Seconds())

	if after := q.owner(t, placed.ID); after != before {
		t.Errorf("before the pause %v, after it %v", before, after)
	}
	if after := q.connection(t, placed.ID); after != socket {
		t.Errorf("socket %s became %s", socket, after)
	}
	eventually(t, func() error {
		if row := q.worker(t, owner.id); row.CordonedReason != "" || row.State != "ready" {
			return fmt.Errorf("after waking the worker is %+v", row)
		}
		return nil
	})
}

// connectPatiently connects a peer whose media waits longer than the pause before it calls the owner lost.
func connectPatiently(t testing.TB, client *sdk.Client, placed *sdk.Placement) *rtcPeer {
	t.Helper()
	return connectWith(t, client, placed, sdk.ConnectConfig{
		Tracks: sendMedia(t),
		SettingEngine: func(settings *webrtc.SettingEngine) {
			settings.SetICETimeouts(30*time.Second, patience, time.Second)
		},
	})
}

// connection is the id of the session's only socket.
func (q *quarter) connection(t testing.TB, sessionID string) string {
	t.Helper()
	return query[string](t, q.stack, `select coalesce(p.connection_id, 'none') from berth.peers p
		join berth.sessions s on s.key = p.session where s.id = $1`, sessionID)
}

// TestDrainedWorkerKeepsItsSessionsUntilTheDeadline drains a worker by the API, takes that back, and drains it with a
// deadline that passes.
func TestDrainedWorkerKeepsItsSessionsUntilTheDeadline(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("a"), 2)
	q.startWorker(t, q.name("b"), 2)
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("s")})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	drained := placed.Owner.WorkerID

	q.drain(t, drained, `{"deadline_seconds":3600}`)
	for i := range 2 {
		if got := q.place(t, fmt.Sprintf(`{"id":"during-%d"}`, i)); got.Owner.WorkerID == drained {
			t.Errorf("placed on a draining worker: %+v", got)
		}
	}
	if r := q.call(t, "POST", "/v1/sessions", `{"id":"one-too-many"}`); r.code(t) != "at_capacity" {
		t.Errorf("with one worker full and one draining: %d %s", r.status, r.body)
	}
	// an idempotent call: the first deadline stands
	first := q.drain(t, drained, `{"deadline_seconds":3600}`)
	if again := q.drain(t, drained, `{"deadline_seconds":7200}`); again != first {
		t.Errorf("a second drain moved the deadline from %s to %s", first, again)
	}
	peer.flows(t)
	q.checkOwner(t, placed.ID, drained, placed.Generation)

	if r := q.operate(t, "DELETE", "/v1/workers/"+drained+"/drain", ""); r.status != 200 {
		t.Fatalf("undrain: %d %s", r.status, r.body)
	}
	if got := q.place(t, `{"id":"after"}`); got.Owner.WorkerID != drained {
		t.Errorf("after the drain was taken back: %+v", got)
	}
	for _, id := range []string{"during-0", "during-1", "after"} {
		if r := q.call(t, "DELETE", "/v1/sessions/"+id, ""); r.status != 204 {
			t.Fatalf("end %s: %d %s", id, r.status, r.body)
		}
	}

	const seconds = 6
	began := time.Now()
	q.drain(t, drained, fmt.Sprintf(`{"deadline_seconds":%d}`, seconds))
	moved := peer.movedBeyond(t, placed.Generation)
	took := time.Since(began)
	peer.flows(t)
	t.Logf("moved %.1f s after a drain with a deadline of %d s", took.Seconds(), seconds)
	if moved.Owner.WorkerID == drained || took < seconds/2*time.Second {
		t.Errorf("moved to %s after %v", moved.Owner.WorkerID, took)
	}
	q.checkOwner(t, placed.ID, moved.Owner.WorkerID, moved.Generation)
}

// drain drains a worker and returns its deadline.
func (q *quarter) drain(t testing.TB, worker, body string) string {
	t.Helper()
	r := q.operate(t, "POST", "/v1/workers/"+worker+"/drain", body)
	if r.status != http.StatusOK {
		t.Fatalf("drain %s: %d %s", worker, r.status, r.body)
	}
	var answer struct {
		State    string `json:"state"`
		Deadline string `json:"drain_deadline"`
	}
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil || answer.State != "draining" {
		t.Fatalf("drain %s: %v %s", worker, err, r.body)
	}
	return answer.Deadline
}

// TestSIGTERMDrainsAWorker has a session stay until its owner's deadline and then go on elsewhere.
func TestSIGTERMDrainsAWorker(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	owner := q.startWorker(t, q.name("a"), 2, "BERTH_DRAIN_DEADLINE=6s")
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("s"), Handler: "play"})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "play")
	peer.flows(t)
	next := q.startWorker(t, q.name("b"), 2)

	owner.signal(syscall.SIGTERM)
	q.awaitState(t, owner.id, "draining")
	peer.flows(t)
	if state := peer.conn.Stats(); state.Generation != placed.Generation {
		t.Errorf("right after SIGTERM the session is at %+v", state)
	}
	if got := q.place(t, `{}`); got.Owner.WorkerID != next.id {
		t.Errorf("placed on %+v", got)
	}
	moved := peer.movedBeyond(t, placed.Generation)
	peer.flows(t)
	if moved.Owner.WorkerID != next.id {
		t.Errorf("moved to %+v", moved.Owner)
	}
	code, err := owner.wait()
	if err != nil || code != 0 {
		t.Errorf("the drained process ended with %d, %v: %s", code, err, owner.errors())
	}
	q.awaitState(t, owner.id, "gone")
}
