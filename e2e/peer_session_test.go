package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// TestPeerSessionGoesOnAtAnotherWorkerAfterAKill runs an echo and a play session with the Go client and kills their owners.
func TestPeerSessionGoesOnAtAnotherWorkerAfterAKill(t *testing.T) {
	t.Parallel()
	for _, handler := range []string{"echo", "play"} {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			q := newQuarter(t, run.stack.get(t), nil)
			workers := []*workerProcess{
				q.launchWorker(t, q.name("a"), 2), q.launchWorker(t, q.name("b"), 2),
			}
			for _, w := range workers {
				q.awaitReady(t, w, 0)
			}
			client := q.client(t)
			placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("s"), Handler: handler})
			if err != nil {
				t.Fatal(err)
			}
			peer := connect(t, client, placed, handler)
			peer.flows(t)
			q.checkOwner(t, placed.ID, placed.Owner.WorkerID, placed.Generation)

			i := slices.IndexFunc(workers, func(w *workerProcess) bool { return w.id == placed.Owner.WorkerID })
			killed := time.Now()
			workers[i].kill(t)
			moved := peer.movedBeyond(t, placed.Generation)
			peer.flows(t)
			t.Logf("%s: media is back %.2f s after kill -9", handler, time.Since(killed).Seconds())
			if moved.Owner.WorkerID != workers[1-i].id {
				t.Errorf("moved to %q, want %q", moved.Owner.WorkerID, workers[1-i].id)
			}
			q.checkOwner(t, placed.ID, moved.Owner.WorkerID, moved.Generation)
			if moves := peer.conn.Stats().Moves; moves != 1 {
				t.Errorf("%d moves", moves)
			}
		})
	}
}

// checkOwner compares who owns an active session by the API and by the table with who should.
func (q *quarter) checkOwner(t testing.TB, id, worker string, generation int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	session, err := q.client(t).Session(ctx, id)
	if err != nil {
		t.Fatalf("read session %s: %v", id, err)
	}
	if session.Owner == nil || session.Owner.WorkerID != worker || session.Generation != generation || session.State != "active" {
		t.Errorf("the API says: %+v, want owner %s and generation %d", session, worker, generation)
	}
	if row := q.owner(t, id); row.worker != worker || row.generation != generation || row.state != "active" {
		t.Errorf("the table says: %v, want owner %s and generation %d", row, worker, generation)
	}
}
