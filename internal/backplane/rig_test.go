package backplane_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// patience is how long a test waits for what should take milliseconds, on a busy machine.
const patience = 30 * time.Second

// plane is what all implementations offer.
type plane interface {
	Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error)
	Subscribe(
		ctx context.Context, topic string, from *backplane.Position, deliver func(backplane.Message),
	) (*backplane.Subscription, error)
	Presence(ctx context.Context, topic string) (backplane.Presence, error)
	Close()
}

// startBus starts a process's backplane on db, closed when the test ends.
func startBus(t *testing.T, db *testkit.DB, change func(*backplane.Config)) (*backplane.Bus, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	config := backplane.Config{
		Pool: db.Pool, DirectURL: db.SocketURL, Logger: testkit.Logger(t), Registerer: registry,
		Linger: 50 * time.Millisecond, CountInterval: 20 * time.Millisecond, ListeningAge: time.Nanosecond,
		ProbeInterval: 250 * time.Millisecond, ProbeTimeout: 2 * time.Second,
	}
	if change != nil {
		change(&config)
	}
	bus, err := backplane.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	return bus, registry
}

// spy records what a subscription is given.
type spy struct {
	t   *testing.T
	sub *backplane.Subscription

	mu      sync.Mutex // guards the rest
	opening backplane.Message
	got     []backplane.Message // with the opening if it answers a position
	changed chan struct{}       // closed and replaced at each delivery
}

func (s *spy) deliver(m backplane.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Opening {
		s.opening = m
	}
	if m.Opening && m.Recovery.Outcome == "" {
		return
	}
	s.got = append(s.got, m)
	close(s.changed)
	s.changed = make(chan struct{})
}

// spyOn subscribes to a topic.
func spyOn(t *testing.T, p plane, topic string, from *backplane.Position) *spy {
	t.Helper()
	s := &spy{t: t, changed: make(chan struct{})}
	var err error
	if s.sub, err = p.Subscribe(t.Context(), topic, from, s.deliver); err != nil {
		t.Fatalf("subscribe to %s: %v", topic, err)
	}
	return s
}

// all is what was given so far.
func (s *spy) all() []backplane.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// until waits until done is content with what was given, and returns that.
func (s *spy) until(what string, done func([]backplane.Message) bool) []backplane.Message {
	s.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		enough, changed := done(s.got), s.changed
		s.mu.Unlock()
		if enough {
			return s.all()
		}
		select {
		case <-changed:
		case <-timer.C:
			got := s.all()
			s.t.Fatalf("%s: not within %v; given %d: %s", what, patience, len(got), brief(got))
		}
	}
}

// count waits for n deliveries.
func (s *spy) count(n int) []backplane.Message {
	s.t.Helper()
	return s.until(fmt.Sprintf("%d deliveries", n), func(got []backplane.Message) bool { return len(got) >= n })
}

// last waits for a message with this text.
func (s *spy) last(text string) []backplane.Message {
	s.t.Helper()
	return s.until("message "+text, func(got []backplane.Message) bool {
		return len(got) > 0 && string(got[len(got)-1].Data) == text
	})
}

// brief is what was given, for people.
func brief(got []backplane.Message) string {
	text := ""
	for _, m := range got[max(0, len(got)-20):] {
		if m.Notice() {
			text += fmt.Sprintf(" %s%v@%d", m.Recovery.Outcome, m.Recovery.Missing, m.Position.Offset)
		} else {
			text += fmt.Sprintf(" %d:%.12s", m.Position.Offset, m.Data)
		}
	}
	return text
}

// texts is what the messages say, without notices.
func texts(got []backplane.Message) []string {
	var said []string
	for _, m := range got {
		if !m.Notice() {
			said = append(said, string(m.Data))
		}
	}
	return said
}

// say publishes texts to a topic, each by a call of its own.
func say(t *testing.T, p plane, topic string, said ...string) {
	t.Helper()
	for _, text := range said {
		if _, err := p.Publish(t.Context(), backplane.Outgoing{Topic: topic, Data: []byte(text)}); err != nil {
			t.Fatalf("publish to %s: %v", topic, err)
		}
	}
}

// sayMany publishes the numbers from..to to a topic, many at once.
func sayMany(t *testing.T, p plane, topic string, from, to int) {
	t.Helper()
	for numbers := range slices.Chunk(numbers(from, to), backplane.MaxMessages) {
		var out []backplane.Outgoing
		for _, text := range numbers {
			out = append(out, backplane.Outgoing{Topic: topic, Data: []byte(text)})
		}
		if _, err := p.Publish(t.Context(), out...); err != nil {
			t.Fatalf("publish to %s: %v", topic, err)
		}
	}
}

func numbers(from, to int) []string {
	var texts []string
	for i := from; i <= to; i++ {
		texts = append(texts, strconv.Itoa(i))
	}
	return texts
}

// dense fails unless the messages of one epoch have offsets without a gap, from first on.
func dense(t *testing.T, got []backplane.Message, first int64) {
	t.Helper()
	for i, m := range got {
		if m.Notice() || m.Position.Offset != first+int64(i) || m.Position.Epoch != got[0].Position.Epoch {
			t.Fatalf("delivery %d is not message %d of epoch %s:%s", i, first+int64(i), got[0].Position.Epoch, brief(got[:i+1]))
		}
	}
}
