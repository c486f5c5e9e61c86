package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/jobs"
)

// callRows are the peers of calls in a fakeStore, and the topics on which the others are told.
type callRows struct {
	peers   map[string]int // connected call peers of workers
	notices []berth.CallNotice
	told    []string // published, in order: call and peer
	words   int      // messages that workers heard in their inboxes
	deaf    bool     // topics take nothing
	old     bool     // workers do not listen to their inboxes
	busy    bool     // somebody works on the rows of all notices: they cannot be cleared
}

// LoseCallPeers makes a call of its own of each peer.
func (c *callRows) LoseCallPeers(
	_ context.Context, worker string, _ berth.Instance, told time.Time, limit int,
) (int, error) {
	lost := min(limit, c.peers[worker])
	for range lost {
		if told.IsZero() {
			c.notices = append(c.notices, lostPeer(c.peers[worker]))
		}
		c.peers[worker]--
	}
	return lost, nil
}

func lostPeer(call int) berth.CallNotice {
	return berth.CallNotice{Key: berth.SessionKey(call), PeerID: "p", Role: berth.RoleOffer, Cause: "worker_lost"}
}

func (c *callRows) CallPeers(_ context.Context, worker string, _ berth.Instance) ([]berth.CallNotice, time.Time, error) {
	var peers []berth.CallNotice
	for call := range c.peers[worker] {
		lost := lostPeer(call + 1)
		lost.Survivor = fmt.Sprintf("s%d", call%3) // s0 is nowhere
		if lost.Survivor == "s0" {
			lost.Survivor = ""
		}
		peers = append(peers, lost)
	}
	return peers, time.Now(), nil
}

func (c *callRows) CallNotices(_ context.Context, limit int) ([]berth.CallNotice, error) {
	return slices.Clone(c.notices[:min(limit, len(c.notices))]), nil
}

func (c *callRows) ClearCallNotices(_ context.Context, told []berth.CallNotice) error {
	if c.busy {
		return nil
	}
	c.notices = slices.DeleteFunc(c.notices, func(n berth.CallNotice) bool { return slices.Contains(told, n) })
	return nil
}

// Publish is that of the topics.
func (c *callRows) Publish(_ context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error) {
	if c.deaf {
		return nil, errBroken
	}
	published := make([]backplane.Published, len(messages))
	for i, m := range messages {
		var said struct {
			berth.InboxMessage
			berth.CallMessage
		}
		if err := json.Unmarshal(m.Data, &said); err != nil {
			return nil, err
		}
		switch inbox := strings.HasPrefix(m.Topic, "w/"); {
		case !inbox:
			c.told = append(c.told, fmt.Sprintf("%s %s %s %s", m.Topic, said.Type, said.PeerID, said.Reason))
		case !c.old:
			published[i].Processes = 1
			c.words++
			for _, lost := range said.Lost {
				c.told = append(c.told, fmt.Sprintf("%s %d %s %s %s", m.Topic, lost.Call, lost.Type, lost.PeerID, lost.Reason))
			}
		}
	}
	return published, nil
}

var _ jobs.Publisher = (*callRows)(nil) // topicsOf asks at run time

// topicsOf are the topics of a store's reaper.
func topicsOf(store reaperStore) jobs.Publisher {
	if topics, ok := store.(jobs.Publisher); ok {
		return topics
	}
	return backplane.NewMemory()
}

func TestSurvivorsAreToldBeforeSessionsAreMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 3).present = false
		store.peers = map[string]int{"w1": 450}
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
		ticks(t, reaper, 2*time.Second)
		if len(store.told) != 300 || store.words != 4 || len(store.notices) != 0 {
			t.Fatalf("%d were told by %d words, %d wait", len(store.told), store.words, len(store.notices))
		}
		if want := berth.InboxTopic("s1") + " 2 peer-disconnected p worker_lost"; store.told[0] != want {
			t.Errorf("told %q, want %q", store.told[0], want)
		}
	})
}

func TestSurvivorsOfWorkersThatDoNotListenAreToldByTheirCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.add("w1", 0).present = false
		store.peers, store.old = map[string]int{"w1": 450}, true
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
		ticks(t, reaper, 2*time.Second)
		if len(store.told) != 300 {
			t.Fatalf("%d were told", len(store.told))
		}
		if want := "call.2 peer-disconnected p worker_lost"; store.told[0] != want {
			t.Errorf("told %q, want %q", store.told[0], want)
		}
	})
}

func TestNoticesThatCouldNotBeToldAreToldLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.peers, store.deaf = map[string]int{"w1": 2}, true
		store.add("w1", 0).present = false
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
		for range 2 {
			if err := reaper.Tick(t.Context()); err != nil && !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
		}
		if len(store.notices) != 2 {
			t.Fatalf("%d notices wait, want two", len(store.notices))
		}
		store.deaf = false
		tick(t, reaper)
		if len(store.told) != 2 || len(store.notices) != 0 {
			t.Errorf("told %v, %d wait", store.told, len(store.notices))
		}
	})
}

func TestNoticesWhoseRowsAreAtWorkAreToldOncePerTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.busy = true
		for call := range 2 * backplane.MaxMessages {
			store.notices = append(store.notices, lostPeer(call))
		}
		reaper, _ := newReaper(t, store, cannedProber(berth.ProbeDead))
		tick(t, reaper)
		if len(store.told) != backplane.MaxMessages {
			t.Fatalf("told %d times, want each of a full batch once", len(store.told))
		}
		store.busy, store.told = false, nil
		tick(t, reaper)
		if len(store.told) != 2*backplane.MaxMessages || len(store.notices) != 0 {
			t.Errorf("afterwards %d were told, %d wait", len(store.told), len(store.notices))
		}
	})
}
