package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// TestScenario_M26_RoomOfFourGoesOnAfterItsWorkerIsKilled has four peers with media in one session, and a fifth in another
// one at the worker where they will go. All four are back there, and the fifth notices nothing.
func TestScenario_M26_RoomOfFourGoesOnAfterItsWorkerIsKilled(t *testing.T) {
	t.Parallel()
	const room = 4
	q := newQuarter(t, run.stack.get(t), nil)
	old := q.startWorker(t, q.name("a"), 2)
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("room")})
	if err != nil {
		t.Fatal(err)
	}
	peers := []*rtcPeer{connect(t, client, placed, "echo")}
	for i := 1; i < room; i++ {
		joined, err := client.AddPeer(t.Context(), placed.ID, sdk.Peer{ID: fmt.Sprintf("peer-%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, connect(t, client, joined, "echo"))
	}
	next := q.startWorker(t, q.name("b"), 2)
	alone := q.place(t, fmt.Sprintf(`{"id":%q}`, q.name("alone")))
	if alone.Owner.WorkerID != next.id {
		t.Fatalf("the other session was placed on %s", alone.Owner.WorkerID)
	}
	joined, err := client.AddPeer(t.Context(), alone.ID, sdk.Peer{ID: "survivor"})
	if err != nil {
		t.Fatal(err)
	}
	survivor := connect(t, client, joined, "echo")
	for _, p := range append(peers, survivor) {
		p.flows(t)
	}
	stall := survivor.watch(t)

	killed := time.Now()
	old.kill(t)
	var back sync.WaitGroup
	for i, p := range peers {
		back.Go(func() {
			if err := p.returns(placed.Generation); err != nil {
				t.Errorf("peer %d: %v", i, err)
				return
			}
			t.Logf("peer %d has media again %.2f s after kill -9", i, time.Since(killed).Seconds())
		})
	}
	back.Wait()
	longest := stall()
	t.Logf("the longest pause of the survivor's media was %.2f s", longest.Seconds())
	if longest > 2*time.Second {
		t.Errorf("the survivor's media stopped for %v", longest)
	}
	generation := peers[0].conn.Placement().Generation
	for i, p := range peers {
		if got := p.conn.Placement(); got.Owner.WorkerID != next.id || got.Generation != generation {
			t.Errorf("peer %d is at %s, generation %d; the first at generation %d", i, got.Owner.WorkerID, got.Generation, generation)
		}
	}
	if moves := survivor.conn.Stats().Moves; moves != 0 {
		t.Errorf("the survivor moved %d times", moves)
	}
	q.checkOwner(t, placed.ID, next.id, generation)
}

// returns waits until packets of both kinds arrive under a larger generation.
func (p *rtcPeer) returns(generation int64) error {
	var audio, video int64
	return poll(patience, func() error {
		if err := p.conn.Err(); err != nil {
			return finalError{err}
		}
		// Not by Stats: Pion reads a track's while it begins, without a lock.
		if now := p.conn.Placement().Generation; now <= generation {
			audio, video = p.audio.Load(), p.video.Load()
			return fmt.Errorf("at generation %d, not beyond %d", now, generation)
		}
		if p.audio.Load() < audio+someFrames || p.video.Load() < video+someFrames {
			return fmt.Errorf("connected, and too few packets")
		}
		return nil
	})
}

// watch looks at the packets of a peer until the returned function is called, which says what the longest pause was.
func (p *rtcPeer) watch(t testing.TB) (longest func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	var pause time.Duration
	watcher.Go(func() {
		packets, since := p.audio.Load(), time.Now()
		for ctx.Err() == nil {
			pace(ctx, interval)
			pause = max(pause, time.Since(since))
			if now := p.audio.Load(); now > packets {
				packets, since = now, time.Now()
			}
		}
	})
	stop := func() time.Duration {
		cancel()
		watcher.Wait()
		return pause
	}
	t.Cleanup(func() { stop() })
	return stop
}
