package signaling

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

// overlap does things to a hub before the last one has come to rest. The database answers joins late, or too late.
type overlap struct {
	r          *rig
	wires      []*fakeWire // not hung up
	generation map[berth.SessionKey]berth.Generation
}

func (o *overlap) pick(t *rapid.T) berth.Held {
	key := berth.SessionKey(rapid.IntRange(1, 2).Draw(t, "session"))
	return berth.Held{Key: key, Generation: o.generation[key]}
}

func (o *overlap) connect(t *rapid.T) {
	h, peer := o.pick(t), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "peer")
	delay := time.Duration(rapid.SampledFrom([]int{0, 1, 300, 1900, 2100}).Draw(t, "answer")) * time.Millisecond
	o.r.directory.set(func(d *fakeDirectory) { d.delay = func() time.Duration { return delay } })
	w, session := newFakeWire(), fmt.Sprintf("s-%d", h.Key)
	w.in <- []byte(`{"type":"offer","sdp":"v=0"}`)
	o.r.hub.start(t.Context(), w, handshake{session: session, token: token(h, session, peer), protocol: true})
	o.wires = append(o.wires, w)
}

// lose hangs up, or says bye first.
func (o *overlap) lose(t *rapid.T) {
	if len(o.wires) == 0 {
		t.Skip("nobody is connected")
	}
	i := rapid.IntRange(0, len(o.wires)-1).Draw(t, "connection")
	if rapid.Bool().Draw(t, "bye") {
		o.wires[i].in <- []byte(`{"type":"bye"}`)
	}
	close(o.wires[i].in)
	o.wires = append(o.wires[:i], o.wires[i+1:]...)
}

func (o *overlap) drop(t *rapid.T) {
	o.r.hub.Drop(o.pick(t), rapid.SampledFrom([]Fate{{}, {Ended: true}, {Return: true}}).Draw(t, "fate"))
}

func (o *overlap) move(t *rapid.T) {
	h := o.pick(t)
	o.generation[h.Key] += 10
	o.r.directory.set(func(d *fakeDirectory) { d.current[h.Key] = o.generation[h.Key] })
}

func (o *overlap) admit(t *rapid.T) {
	o.r.hub.Admit(rapid.SampledFrom([]Admission{AdmitNone, AdmitHeld, AdmitAll, AdmitAll}).Draw(t, "admission"))
}

func (o *overlap) wait(t *rapid.T) {
	<-time.After(time.Duration(rapid.IntRange(0, 2500).Draw(t, "milliseconds")) * time.Millisecond)
}

// check: what runs is on the books, and what is on the books is held.
func (o *overlap) check(t *rapid.T) {
	synctest.Wait()
	h := o.r.hub
	held := map[berth.Held]bool{}
	for _, one := range h.Held() {
		held[one] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	peers := 0
	for _, s := range h.sessions {
		peers += len(s.peers)
		if !held[s.held] || s.fate != nil {
			t.Fatalf("session %v is served, held %v, fate %v", s.held, held[s.held], s.fate)
		}
	}
	if got, _ := o.r.media.open(); got != len(h.sessions) {
		t.Fatalf("%d media sessions for %d sessions", got, len(h.sessions))
	}
	if peers > len(h.open) {
		t.Fatalf("%d peers on %d connections", peers, len(h.open))
	}
}

// empty: once all is over, nothing is left of anybody.
func (o *overlap) empty(t *rapid.T) {
	for _, w := range o.wires {
		close(w.in)
	}
	o.r.hub.Admit(AdmitAll)
	pass(10 * time.Minute) // joins, idle timeouts and absences run out
	o.r.holds(0, "at the end")
	h := o.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.sessions) + len(h.joining) + len(h.ending) + len(h.absent) + len(h.open) + len(h.joins.gate); n != 0 {
		t.Fatalf("left: %d sessions, %d joining, %d ending, %d absent, %d open, %d gates",
			len(h.sessions), len(h.joining), len(h.ending), len(h.absent), len(h.open), len(h.joins.gate))
	}
	if sessions, peers := o.r.media.open(); sessions != 0 || peers != 0 {
		t.Fatalf("left: %d media sessions, %d media peers", sessions, peers)
	}
	if s, c := o.r.gauge("berth_signaling_sessions"), o.r.gauge("berth_signaling_connections"); s != 0 || c != 0 {
		t.Fatalf("left by the gauges: %v sessions, %v connections", s, c)
	}
}

func TestPropertyNothingIsLeftHoweverThingsOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(inBubble{t}, func(rt *rapid.T) {
			o := &overlap{generation: map[berth.SessionKey]berth.Generation{1: 101, 2: 102}}
			o.r = newRig(rt, Config{PingInterval: 1000 * time.Hour, CloseGrace: time.Second})
			o.r.directory.ttl = 10_000 * time.Hour
			stop := o.r.run()
			defer stop()
			rt.Repeat(map[string]func(*rapid.T){
				"connect": o.connect, "connect again": o.connect, "lose": o.lose, "drop": o.drop, "move": o.move,
				"admit": o.admit, "wait": o.wait, "": o.check,
			})
			o.empty(rt)
		})
	})
}
