package signaling

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// W10: clients that upgrade and then say nothing are closed after the time to join, and those without a token never count
// as peers.
func TestScenario_W10_ManySilentClientsHoldNothing(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: 10 * time.Second}, func(r *rig) {
		joined, refused := make([]*fakeWire, silentClients), make([]*fakeWire, silentClients)
		for i := range joined {
			joined[i] = r.connect(held(1+i), fmt.Sprintf("s-%d", 1+i), "a", newFakeWire())
			refused[i] = newFakeWire()
			r.hub.start(context.Background(), refused[i], handshake{session: fmt.Sprintf("s-%d", 1+i), token: "forged", protocol: true})
		}
		synctest.Wait()
		if n := r.gauge("berth_signaling_connections"); n != silentClients {
			t.Fatalf("%v peers are counted", n)
		}
		pass(15*time.Second + time.Millisecond)
		for i := range joined {
			if a, b := joined[i].code(), refused[i].code(); a != CloseTryLater || b != CloseToken {
				t.Fatalf("client %d: closed with %d and %d", i, a, b)
			}
		}
		if n := r.gauge("berth_signaling_connections"); n != 0 || r.directory.connections() != 0 {
			t.Fatalf("%v peers are counted, %d connected", n, r.directory.connections())
		}
	})
}

// W13: what becomes of a connection that went silent does not concern those that replaced it.
func TestScenario_W13_EndOfADeadConnectionSpoilsNoLaterOne(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: 10 * time.Second, QueueAge: 5 * time.Second, CloseGrace: 5 * time.Second}, func(r *rig) {
		other := r.connect(held(1), "s-1", "other", chattyWire())
		first := newFakeWire()
		first.stall = make(chan struct{}) // no packet gets through, in either direction
		r.connect(held(1), "s-1", "a", first)
		second := r.connect(held(1), "s-1", "a", chattyWire())
		pass(time.Minute) // over every timeout of the first connection
		select {
		case <-first.cut:
		default:
			t.Fatal("the first connection is still there")
		}
		if second.code() != 0 {
			t.Fatalf("second closed with %d", second.code())
		}
		if n := r.gauge("berth_signaling_connections"); n != 2 {
			t.Fatalf("%v peers are counted", n)
		}
		close(second.in)
		synctest.Wait()
		third := r.connect(held(1), "s-1", "a", chattyWire())
		pass(time.Minute)
		if third.code() != 0 || other.code() != 0 || r.gauge("berth_signaling_connections") != 2 {
			t.Fatalf("third closed with %d, the other peer with %d", third.code(), other.code())
		}
		told := 0
		for _, frame := range other.frames() {
			if strings.Contains(frame, `"peer-disconnected"`) {
				told++
			}
		}
		if told != 1 {
			t.Fatalf("the other peer heard %d times that a was lost, which it was once", told)
		}
	})
}

// chattyWire is a connection whose client answers pings.
func chattyWire() *fakeWire {
	w := newFakeWire()
	w.chat = true
	return w
}
