package signaling

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

// model is what a hub should believe, kept the simple way.
type model struct {
	r        *rig
	idle     time.Duration
	sessions map[berth.SessionKey]*modelSession
	wires    map[*fakeWire]websocket.StatusCode // what each connection should be closed with; 0: open or hung up
}

type modelSession struct {
	held       berth.Held
	served     bool
	peers      map[string]*fakeWire
	emptySince time.Time
	ended      berth.EndedReason
}

func newModel(r *rig, sessions int) *model {
	m := &model{
		r: r, idle: r.directory.idle,
		sessions: map[berth.SessionKey]*modelSession{}, wires: map[*fakeWire]websocket.StatusCode{},
	}
	for n := range sessions {
		h := held(n + 1)
		m.sessions[h.Key] = &modelSession{held: h, peers: map[string]*fakeWire{}}
		r.directory.current[h.Key] = h.Generation
	}
	return m
}

func (m *model) pick(t *rapid.T) *modelSession {
	return m.sessions[berth.SessionKey(rapid.IntRange(1, len(m.sessions)).Draw(t, "session"))]
}

// pickConnected skips the action when nobody is connected.
func (m *model) pickConnected(t *rapid.T) (*modelSession, string, *fakeWire) {
	s := m.pick(t)
	if len(s.peers) == 0 {
		t.Skip("nobody is connected")
	}
	names := make([]string, 0, len(s.peers))
	for name := range s.peers {
		names = append(names, name)
	}
	slices.Sort(names)
	name := rapid.SampledFrom(names).Draw(t, "peer")
	return s, name, s.peers[name]
}

func (m *model) connect(t *rapid.T) {
	s := m.pick(t)
	peer := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "peer")
	h := s.held
	stale := rapid.IntRange(0, 9).Draw(t, "stale") == 0
	if stale {
		h.Generation--
	}
	w := m.r.connect(h, fmt.Sprintf("s-%d", h.Key), peer, newFakeWire())
	switch {
	case stale:
		m.wires[w] = CloseMoved
	case s.ended != "":
		m.wires[w] = CloseEnded
	default:
		if old := s.peers[peer]; old != nil {
			m.wires[old] = CloseReplaced
		}
		m.wires[w] = 0
		s.peers[peer], s.served = w, true
	}
}

func (m *model) hangUp(t *rapid.T) {
	s, name, w := m.pickConnected(t)
	close(w.in)
	delete(s.peers, name)
	s.emptySince = time.Now()
}

func (m *model) bye(t *rapid.T) {
	s, name, w := m.pickConnected(t)
	w.in <- []byte(`{"type":"bye"}`)
	m.wires[w] = CloseBye
	delete(s.peers, name)
	s.emptySince = time.Now()
	if len(s.peers) == 0 {
		s.served, s.ended = false, berth.EndedLeft
	}
}

func (m *model) drop(t *rapid.T) {
	s := m.pick(t)
	ended := rapid.Bool().Draw(t, "ended")
	m.r.hub.Drop(s.held, Fate{Ended: ended, Reason: berth.EndedDeleted})
	code := CloseMoved
	if ended {
		code = CloseEnded
		if s.ended == "" {
			s.ended = berth.EndedDeleted
			m.r.directory.set(func(d *fakeDirectory) { d.ended[s.held] = berth.EndedDeleted })
		}
	}
	for name, w := range s.peers {
		m.wires[w] = code
		delete(s.peers, name)
	}
	s.served = false
}

// move places a session anew here, as after an end or a rejoin.
func (m *model) move(t *rapid.T) {
	s := m.pick(t)
	if s.served {
		t.Skip("served")
	}
	s.held.Generation += 10
	s.ended = ""
	m.r.directory.set(func(d *fakeDirectory) { d.current[s.held.Key] = s.held.Generation })
}

func (m *model) wait(t *rapid.T) {
	pass(time.Duration(rapid.IntRange(1, 50).Draw(t, "seconds")) * time.Second)
	for _, s := range m.sessions {
		if s.served && len(s.peers) == 0 && time.Since(s.emptySince) >= m.idle {
			s.served, s.ended = false, berth.EndedIdle
		}
	}
}

// check compares the hub, its gauges, the database, the media engine and every connection with the model.
func (m *model) check(t *rapid.T) {
	synctest.Wait()
	var want []berth.Held
	peers := 0
	for _, s := range m.sessions {
		if s.served {
			want = append(want, s.held)
		}
		peers += len(s.peers)
		if got := m.r.directory.endedAs(s.held); got != s.ended {
			t.Fatalf("session %d ended as %q, want %q", s.held.Key, got, s.ended)
		}
	}
	if got := m.r.hub.Held(); berth.Digest(got) != berth.Digest(want) || len(got) != len(want) {
		t.Fatalf("holds %v, want %v", got, want)
	}
	if got := m.r.gauge("berth_signaling_sessions"); int(got) != len(want) {
		t.Fatalf("%v sessions counted, want %d", got, len(want))
	}
	if got := m.r.gauge("berth_signaling_connections"); int(got) != peers {
		t.Fatalf("%v connections counted, want %d", got, peers)
	}
	if got := m.r.directory.connections(); got != peers && m.settled() {
		t.Fatalf("the database believes in %d connections, want %d", got, peers)
	}
	if got, _ := m.r.media.open(); got != len(want) {
		t.Fatalf("%d media sessions open, want %d", got, len(want))
	}
	for w, code := range m.wires {
		if w.code() != code {
			t.Fatalf("connection closed with %d, want %d", w.code(), code)
		}
	}
}

// settled is false while words to the database wait.
func (m *model) settled() bool { return len(m.r.hub.settler.waiting()) == 0 }

func TestPropertyHubBelievesWhatHappened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(inBubble{t}, func(rt *rapid.T) {
			r := newRig(rt, Config{PingInterval: 1000 * time.Hour})
			r.directory.ttl = 10_000 * time.Hour
			stop := r.run()
			defer stop()
			m := newModel(r, 3)
			rt.Repeat(map[string]func(*rapid.T){
				"connect": m.connect, "connect again": m.connect, "hang up": m.hangUp, "bye": m.bye, "drop": m.drop,
				"move": m.move, "wait": m.wait, "": m.check,
			})
			r.hub.DropAll(Fate{})
			synctest.Wait()
			if s, c := r.gauge("berth_signaling_sessions"), r.gauge("berth_signaling_connections"); s != 0 || c != 0 {
				rt.Fatalf("%v sessions and %v connections left", s, c)
			}
		})
	})
}

func TestPropertyParseNeverPanicsAndDepthIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "levels")
		text := `{"type":"pong","id":"]}[{\""}`
		for range n {
			text = `{"type":` + text + `}`
		}
		if got := depth([]byte(text)); got != n+1 {
			t.Fatalf("depth %d, want %d", got, n+1)
		}
		garbage := rapid.SliceOf(rapid.Byte()).Draw(t, "garbage")
		if _, err := parse(garbage); err == nil && len(garbage) < len(`{"type":"bye"}`) {
			t.Fatalf("accepted %q", garbage)
		}
	})
}

// inBubble hides Deadline, which rapid asks for and a synctest bubble forbids: real deadlines mean nothing there.
type inBubble struct{ rapid.TB }
