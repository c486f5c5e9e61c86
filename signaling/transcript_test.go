package signaling

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// line is one step of the transcript: who does what.
type line struct{ who, what string }

// transcript reads the steps after the upgrade from the page.
func transcript(t *testing.T) (steps []line) {
	t.Helper()
	page, err := os.ReadFile("../docs/signaling.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "## Transcript")
	_, block, _ = strings.Cut(block, "```\n")
	block, _, _ = strings.Cut(block, "\n```")
	for text := range strings.SplitSeq(block, "\n") {
		switch {
		case strings.HasPrefix(text, "    "):
			steps[len(steps)-1].what += strings.TrimSpace(text)
		case strings.HasPrefix(text, "   ("):
			steps = append(steps, line{"", strings.Trim(text, " ()")})
		case strings.HasPrefix(text, "C  {"), strings.HasPrefix(text, "S  {"), strings.HasPrefix(text, "S  close"):
			steps = append(steps, line{text[:1], text[3:]})
		}
	}
	if len(steps) < 30 {
		t.Fatalf("the transcript has %d steps", len(steps))
	}
	return steps
}

// replay is the transcript's client and the world around it.
type replay struct {
	*rig
	t     *testing.T
	wire  *fakeWire
	other *fakeWire
	heard int // frames of wire that were compared
	epoch string
}

// The transcript of the documentation is what the server does.
func TestTranscriptIsTrue(t *testing.T) {
	t.Parallel()
	steps := transcript(t)
	synctest.Test(t, func(t *testing.T) {
		r := &replay{t: t, wire: newFakeWire(), other: newFakeWire(), rig: &rig{
			t: t, directory: newFakeDirectory(), topics: &fakeTopics{Memory: backplane.NewMemory()}, media: &fakeMedia{},
			tokens: fakeTokens{berth.TopicGrant{Publish: []string{"room:*"}}},
		}}
		r.directory.id = "s-7f3kq9v2mw4x"
		r.hub = r.make()
		r.hub.Admit(AdmitAll)
		defer r.run()()
		r.join("p-1", r.wire)
		for n, step := range steps {
			r.do(n, step)
		}
	})
}

func (r *replay) make() *Hub {
	hub, err := New(Config{ICEServers: func(g Grant) []ICEServer {
		return []ICEServer{{URLs: []string{"turn:turn.example.com"}, Username: "1764500000:" + g.Peer.ID, Credential: "x"}}
	}}, Deps{
		Tokens: r.tokens, Directory: r.directory, Media: r.media, Topics: r.topics,
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return hub
}

func (r *replay) join(peer string, w *fakeWire) {
	r.connect(berth.Held{Key: 1, Generation: 48121}, r.directory.id, peer, w)
}

func (r *replay) do(n int, step line) {
	r.t.Helper()
	switch {
	case step.who == "C":
		r.wire.in <- []byte(strings.ReplaceAll(step.what, "<the epoch>", r.epoch))
	case step.who == "":
		r.happen(step.what)
	case strings.HasPrefix(step.what, "close"):
		if want := fmt.Sprintf("close %d", r.wire.code()); step.what != want {
			r.t.Fatalf("step %d: the connection ended with %s, want %s", n, want, step.what)
		}
	default:
		r.compare(n, step.what)
	}
	synctest.Wait()
}

// happen does what the transcript says in parentheses.
func (r *replay) happen(what string) {
	r.t.Helper()
	data, topic, published := strings.Cut(what, " is published to ")
	switch {
	case published:
		out := backplane.Outgoing{Topic: berth.TenantTopic("acme", topic), Data: []byte(data)}
		if _, err := r.topics.Publish(r.t.Context(), out); err != nil {
			r.t.Fatal(err)
		}
	case what == "p-2 joins":
		r.join("p-2", r.other)
	case what == "p-2 is lost":
		close(r.other.in)
	case what == "10 s pass":
		<-time.After(10 * time.Second)
	default:
		r.t.Fatalf("nobody knows how to do: %s", what)
	}
}

// compare checks the next frame of the server. Dots in the transcript stand for anything.
func (r *replay) compare(n int, want string) {
	r.t.Helper()
	frames := r.wire.frames()
	if r.heard >= len(frames) {
		r.t.Fatalf("step %d: no frame came, want %s", n, want)
	}
	var got, expected frame
	if err := errors.Join(json.Unmarshal([]byte(frames[r.heard]), &got), json.Unmarshal([]byte(want), &expected)); err != nil {
		r.t.Fatalf("step %d: %s: %v", n, want, err)
	}
	r.heard++
	if epoch := got.text("epoch"); epoch != "" {
		r.epoch = epoch
	}
	anything := cmp.FilterValues(func(a, b string) bool { return a == "..." || b == "..." }, cmp.Ignore())
	if diff := cmp.Diff(map[string]any(expected), map[string]any(got), anything); diff != "" {
		r.t.Fatalf("step %d: %s", n, diff)
	}
}
