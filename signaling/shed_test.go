package signaling

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/internal/berth"
)

func TestShedClosesConnectionsOfCallsAtRandom(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	var clients []*client
	for n := range 4 {
		a, _ := w1.join(1+n, "a")
		b, _ := w2.join(1+n, "b")
		a.expect("peer-connected")
		clients = append(clients, a, b)
	}
	if n := w1.hub.Shed(berth.ShedOrder{Count: 3}); n != 3 {
		t.Fatalf("%d are to be shed", n)
	}
	if n := w1.hub.Shed(berth.ShedOrder{Count: 3}); n != 1 {
		t.Errorf("%d more, want the one that is left", n)
	}
	for i := 0; i < len(clients); i += 2 {
		ended := clients[i].expectClose(CloseRestart)
		ms, err := strconv.Atoi(strings.TrimPrefix(ended.Reason, "retry_ms="))
		wait := time.Duration(ms) * time.Millisecond
		if err != nil || wait < minShedWait || wait > berth.ShedWindow {
			t.Errorf("got %q", ended.Reason)
		}
		if f := clients[i+1].expect("peer-disconnected"); f.text("reason") != berth.CallMoved {
			t.Errorf("got %v", f)
		}
	}
	eventually(t, "the database knows", func() bool { return w1.directory.connections() == 4 })
	eventually(t, "no connection is left", func() bool { return w1.gauge("berth_signaling_connections") == 0 })
}

func TestShedLeavesMediaSessionsWhereTheyAre(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	a, _ := r.join(1, "a")
	if n := r.hub.Shed(berth.ShedOrder{Count: 10}); n != 0 {
		t.Errorf("%d are to be shed", n)
	}
	a.send(`{"type":"bye"}`)
	a.expectClose(CloseBye)
}

// A connection leaves by the earliest order. One that ends before its turn is not shed, and the hub ends with orders under way.
func TestShedIsSpread(t *testing.T) {
	t.Parallel()
	w1, _ := newCallServers(t)
	a, _ := w1.join(1, "a")
	if n := w1.hub.Shed(berth.ShedOrder{Count: 1, Spread: 1000 * time.Hour}); n != 1 {
		t.Fatalf("%d are to be shed", n)
	}
	leaves := func() time.Time {
		p := w1.hub.movable()[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.shedAt
	}
	first := leaves()
	for range 20 {
		w1.hub.Shed(berth.ShedOrder{Count: 1, Spread: 10000 * time.Hour})
	}
	if leaves().After(first) {
		t.Errorf("it leaves %v later", leaves().Sub(first))
	}
	_ = a.ws.CloseNow()
	eventually(t, "the connection is gone", func() bool { return w1.directory.connections() == 0 })
	_, err := a.next()
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		t.Errorf("got %v", closed)
	}
}

// An order that was too large, or too slow, does not disarm those that come after it.
func TestShedHastensWhatIsToLeaveLater(t *testing.T) {
	t.Parallel()
	w1, _ := newCallServers(t)
	a, _ := w1.join(1, "a")
	if n := w1.hub.Shed(berth.ShedOrder{Count: 1000, Spread: 1000 * time.Hour}); n != 1 {
		t.Fatalf("%d are to be shed", n)
	}
	if n := w1.hub.Shed(berth.ShedOrder{Count: 1}); n != 1 {
		t.Fatalf("%d are to be shed", n)
	}
	a.expectClose(CloseRestart)
}

func TestPlannedMovesTellCallsToComeBackInTheirTurn(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	w1.hub.DropAll(Fate{Planned: true})
	if ended := a.expectClose(CloseRestart); !strings.HasPrefix(ended.Reason, "retry_ms=") {
		t.Errorf("got %q", ended.Reason)
	}
	w2.hub.Drop(held(1), Fate{}) // it moved, as the database says
	b.expectClose(CloseMoved)
	r := newServer(t, Config{})
	media, _ := r.join(1, "a")
	r.hub.DropAll(Fate{Planned: true})
	media.expectClose(CloseMoved)
}
