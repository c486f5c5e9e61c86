package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	sdk "github.com/berthdev/berth/sdk/go"
)

// dropWithin is how soon a worker that was replaced must have dropped what moved, from waking: a renewal is due at once.
// The rest is for machines that are busy.
const dropWithin = 2 * time.Second

// TestScenario_F08_WorkerPausedBeyondTheLimitDropsWhatMovedWhenItWakes pauses a worker until the reaper gives it up, and
// wakes it when all of its sessions are elsewhere or free.
func TestScenario_F08_WorkerPausedBeyondTheLimitDropsWhatMovedWhenItWakes(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	c := newCity(t, cityPlan{
		apis: 2, workers: 1, slots: 4, worker: shortLease, api: []string{shortLease[0], fmt.Sprint("BERTH_PAUSE_LIMIT=", limit)},
	})
	client := c.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: c.name("media")})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	var held []*socket
	for _, policy := range []string{"replace", "rejoin"} {
		r := c.call(t, "POST", "/v1/sessions", fmt.Sprintf(`{"id":%q,"on_worker_loss":%q}`, policy, policy))
		held = append(held, holdSocket(t, parse[talkPlacement](t, r)))
	}
	old := c.workers[0]
	control := query[string](t, c.stack, "select control_url from berth.workers where id = $1", old.id)
	next := c.startWorker(t, c.name("next"), 8, shortLease...)

	old.signal(syscall.SIGSTOP)
	paused := time.Now()
	c.awaitState(t, old.id, "lost")
	lost := time.Since(paused)
	moved := peer.movedBeyond(t, placed.Generation)
	eventually(t, func() error {
		if row := c.owner(t, "replace"); row.worker != next.id {
			return fmt.Errorf("the session to be replaced is %v", row)
		}
		return nil
	})
	peer.flows(t)
	t.Logf("paused for good after %.1f s, limit %v; %s; media is back at %s", lost.Seconds(), limit,
		strings.Join(c.losses(t), "; "), moved.Owner.WorkerID)
	if lost < limit {
		t.Errorf("declared lost after %v, before the limit of %v", lost, limit)
	}
	allOpen(t, held...) // of a worker that does not run: nobody has closed them

	old.signal(syscall.SIGCONT)
	woke := time.Now()
	for _, s := range held {
		dropped(t, s, woke)
	}
	eventually(t, func() error {
		if n := gauge(t, control, "berth_media_sessions"); n != 0 {
			return fmt.Errorf("the old owner has media of %v sessions", n)
		}
		return nil
	})
	silent := time.Since(woke)
	c.awaitReady(t, old, old.instance)
	t.Logf("no media at the old owner %.2f s after waking, registered anew after %.2f s", silent.Seconds(), time.Since(woke).Seconds())
	if silent > dropWithin {
		t.Errorf("media of two owners for %v", silent)
	}
	peer.flows(t)
	if moves := peer.conn.Stats().Moves; moves != 1 {
		t.Errorf("the session moved %d times", moves)
	}
	c.checkOwner(t, placed.ID, next.id, moved.Generation)
	if row := c.owner(t, "rejoin"); row.state != "awaiting_rejoin" {
		t.Errorf("the session that waits for its client is %v", row)
	}
}

// dropped waits until a connection is closed as one whose session moved.
func dropped(t testing.TB, s *socket, woke time.Time) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
		t.Fatalf("the socket of %s is still open", s.placed.ID)
	}
	took := s.ended.Sub(woke)
	t.Logf("the socket of %s was closed %.2f s after waking: %v", s.placed.ID, took.Seconds(), s.err)
	if code := websocket.CloseStatus(s.err); code != 4410 || took > dropWithin {
		t.Errorf("session %s: close code %d after %v, want 4410 within %v", s.placed.ID, code, took, dropWithin)
	}
}

// gauge reads a metric without labels from a worker's control listener.
func gauge(t testing.TB, control, name string) float64 {
	t.Helper()
	answer, err := exchange(newRequest(t, "GET", control+"/metrics", "", nil))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(answer.body)
	if found == nil {
		t.Fatalf("no metric %s: %d %s", name, answer.status, answer.body)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
