//go:build chaos

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// wallClock is the file that a process's clock goes by.
type wallClock string

// setting is the variable that gives a process this clock.
func (c wallClock) setting() string { return clockVar + "=" + string(c) }

// set steps the clock. The process notices within milliseconds. It never finds half a file.
func (c wallClock) set(offset time.Duration) error {
	if err := os.WriteFile(string(c)+".next", []byte(offset.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(string(c)+".next", string(c))
}

// clockCity is a city each of whose processes has a clock of its own.
type clockCity struct {
	*city

	apiClocks    []wallClock
	workerClocks []wallClock
}

func newClockCity(t testing.TB) *clockCity {
	t.Helper()
	c := &clockCity{}
	dir := t.TempDir()
	clock := func(name string, offset time.Duration) wallClock {
		made := wallClock(filepath.Join(dir, name))
		if err := made.set(offset); err != nil {
			t.Fatal(err)
		}
		return made
	}
	c.apiClocks = []wallClock{clock("api-0", 2*time.Minute), clock("api-1", -2*time.Minute)}
	c.workerClocks = []wallClock{clock("worker-0", -2*time.Minute), clock("worker-1", 2*time.Minute)}
	c.city = newCity(t, cityPlan{apis: 1, api: []string{c.apiClocks[0].setting()}})
	c.plan.api = []string{c.apiClocks[1].setting()}
	c.addAPI(t)
	for i, made := range c.workerClocks {
		c.workers = append(c.workers, c.launchWorker(t, c.name(fmt.Sprintf("w%d", i)), 20, made.setting()))
	}
	for _, w := range c.workers {
		c.awaitReady(t, w, 0)
	}
	return c
}

// step sets every clock, and waits until what the API processes say of the time shows it.
func (c *clockCity) step(t testing.TB, offsets [4]time.Duration) {
	t.Helper()
	for i, clock := range append(c.apiClocks, c.workerClocks...) {
		if err := clock.set(offsets[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range c.apis {
		eventually(t, func() error {
			answer := call(t, "GET", a.url+"/livez", "", "")
			says, err := http.ParseTime(answer.header.Get("Date"))
			if err != nil {
				return err
			}
			if off := time.Until(says) - offsets[i]; off.Abs() > 5*time.Second {
				return fmt.Errorf("the clock of %s is %v away from the offset of %v", a.url, off, offsets[i])
			}
			return nil
		})
	}
}

// admits starts a session through each API process and connects to it, so both signers' tokens meet both clocks of workers.
func (c *clockCity) admits(t testing.TB, round int) (held []*socket) {
	t.Helper()
	for i, a := range c.apis {
		for n := range 2 {
			r := call(t, "POST", a.url+"/v1/sessions", c.key, fmt.Sprintf(`{"id":"step-%d-%d-%d"}`, round, i, n))
			if r.status != 201 {
				t.Fatalf("start: %d %s", r.status, r.body)
			}
			held = append(held, holdSocket(t, parse[talkPlacement](t, r)))
		}
	}
	return held
}

// end ends the sessions, and waits until their workers know.
func (c *clockCity) end(t testing.TB, held []*socket) {
	t.Helper()
	for _, s := range held {
		if r := c.call(t, "DELETE", "/v1/sessions/"+s.placed.ID, ""); r.status != 204 {
			t.Fatalf("end: %d %s", r.status, r.body)
		}
	}
	for _, s := range held {
		<-s.done
	}
}

// TestClocksOfProcessesMayBeWrongAndSet runs API processes and workers whose clocks are two minutes off in either direction
// and are stepped across each other, while sessions and a call live and others start and end.
func TestClocksOfProcessesMayBeWrongAndSet(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	c := newClockCity(t)
	c.step(t, [4]time.Duration{2 * m, -2 * m, -2 * m, 2 * m})
	held := c.holdSessions(t, 6)
	a, b := c.holdCall(t, c.name("call"))
	client := c.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: c.name("media")})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	stall := peer.watch(t)
	l := c.begin(t, loadPlan{clients: 2})
	l.warm(t)
	before := c.mustOwners(t)
	for round, offsets := range [][4]time.Duration{
		{2 * m, -2 * m, -2 * m, 2 * m},
		{-2 * m, 2 * m, 2 * m, -2 * m},
		{0, 0, 0, 0},
		{2 * m, 2 * m, -2 * m, -2 * m},
		{-2 * m, -2 * m, 2 * m, 2 * m},
		{0, 2 * m, 0, -2 * m},
	} {
		c.step(t, offsets)
		c.ticked(t, settled)
		began := time.Now()
		fresh := c.admits(t, round)
		joined := time.Since(began)
		talk(t, a, b, fmt.Sprint("round ", round))
		again := holdSocket(t, c.rejoins(t, held[round]))
		<-held[round].done // replaced by its own newer connection
		held[round] = again
		began = time.Now()
		c.end(t, fresh)
		t.Logf("clocks off by %v: %d starts and joins took %.2f s, their ends %.2f s", offsets, len(fresh), joined.Seconds(), time.Since(began).Seconds())
	}
	c.kept(t, before)
	l.end(t)
	if longest := stall(); longest > 2*time.Second {
		t.Errorf("media stopped for %v", longest)
	}
	if moves := peer.conn.Stats().Moves; moves != 0 {
		t.Errorf("the session with media moved %d times", moves)
	}
	peer.flows(t)
	allOpen(t, append(held, a, b)...)
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	c.nobodyEnded(t)
}

// rejoins asks for the placement of a session that has not lost its owner.
func (c *clockCity) rejoins(t testing.TB, s *socket) talkPlacement {
	t.Helper()
	r := call(t, "POST", s.placed.RejoinURL, s.placed.RejoinToken, fmt.Sprintf(`{"generation":%d}`, s.placed.Generation))
	if r.status != 200 {
		t.Fatalf("rejoin: %d %s", r.status, r.body)
	}
	placed := parse[talkPlacement](t, r)
	if placed.Owner != s.placed.Owner || placed.Generation != s.placed.Generation {
		t.Errorf("%s was at %+v, is at %+v", s.placed.ID, s.placed.placement, placed.placement)
	}
	return placed
}
