package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

// Counts of many are remembered for a moment: what is seated meanwhile must count all the same, or all would go to the worker
// that had fewest.
func TestSeatsOfAStormAreShared(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	const seats = 400
	call := c.seat("a").Session.Key
	for worker, n := range map[string]int{"w1": 300, "w2": 200} {
		c.exec(`insert into berth.peers (session, peer_id, role, worker_id, instance, connection_id, connected_at)
			select $1, $2 || '-' || g, 'offer', $2, $3, 'c', now() from generate_series(1, $4::int) g`,
			int64(call), worker, int32(c.workers[worker].number), n)
	}
	var group sync.WaitGroup
	placed := make(chan string, seats)
	for i := range seats {
		group.Go(func() {
			s := start(fmt.Sprintf("c%d", i))
			s.Kind, s.Peer.ID = berth.KindCall, "a"
			p, err := c.store.Place(t.Context(), s)
			if err != nil {
				t.Error(err)
			}
			placed <- p.Session.WorkerID
		})
	}
	group.Wait()
	close(placed)
	c.exec("delete from berth.peers where connection_id = 'c'")
	got := map[string]int{}
	for worker := range placed {
		got[worker]++
	}
	// Nobody connects meanwhile, so 250 go to the one that had fewer, and the rest is shared. Each session of the database
	// remembers for itself, and begins anew now and then.
	if got["w2"] < 200 || got["w1"] < 50 {
		t.Errorf("placed %v", got)
	}
}
