package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// members is what an answer says of a session's peers.
type members struct {
	placement

	Peers []struct {
		ID        string `json:"id"`
		Connected bool   `json:"connected"`
	} `json:"peers"`
}

// TestScenario_F11_LastPeerOfOneAPILeavesAndTheSessionStays has the peers of one session come through different API
// processes. All of one's leave, for good and by a lost connection; the others go on, and whoever comes joins them.
func TestScenario_F11_LastPeerOfOneAPILeavesAndTheSessionStays(t *testing.T) {
	t.Parallel()
	const idle = 5 * time.Second
	q := newQuarter(t, run.stack.get(t), nil)
	q.startWorker(t, q.name("w0"), 4)
	q.startWorker(t, q.name("w1"), 4)
	id := q.name("room")
	through := func(api int, path, body string) talkPlacement {
		t.Helper()
		r := call(t, "POST", run.stack.apis[api]+path, q.key, body)
		if r.status != 201 {
			t.Fatalf("POST %s: %d %s", path, r.status, r.body)
		}
		return parse[talkPlacement](t, r)
	}
	add := func(api int, peer string) *socket {
		t.Helper()
		return holdSocket(t, through(api, "/v1/sessions/"+id+"/peers", fmt.Sprintf(`{"id":%q}`, peer)))
	}
	first := holdSocket(t, through(0, "/v1/sessions", fmt.Sprintf(
		`{"id":%q,"peer":{"id":"a-0"},"idle_timeout_seconds":%.0f}`, id, idle.Seconds())))
	second := add(0, "a-1")
	stays := add(1, "b-0")

	first.say(t, `{"type":"bye"}`)
	_ = second.ws.CloseNow()
	<-first.done
	<-second.done
	left := time.Now()
	after(time.Until(left.Add(idle + 2*time.Second)))
	joined := add(2, "c-0")
	if got, want := joined.placed.placement, stays.placed.placement; got.Owner != want.Owner || got.Generation != want.Generation {
		t.Errorf("who joined is at %+v, who stayed at %+v", got, want)
	}
	for _, api := range run.stack.apis {
		got := parse[members](t, call(t, "GET", api+"/v1/sessions/"+id, q.key, ""))
		var connected []string
		for _, p := range got.Peers {
			if p.Connected {
				connected = append(connected, p.ID)
			}
		}
		slices.Sort(connected)
		if want := []string{"b-0", "c-0"}; got.State != "active" || !slices.Equal(connected, want) {
			t.Errorf("%s says that the session is %s with %v, want %v", api, got.State, connected, want)
		}
	}
	allOpen(t, stays, joined)
	t.Logf("%.1f s after the last peer of one API process left, with an idle timeout of %v, the session is active",
		time.Since(left).Seconds(), idle)
}
