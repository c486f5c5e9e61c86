//go:build chaos && linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	sdk "github.com/berthdev/berth/sdk/go"
)

// orSay skips a test that this machine cannot run, and says why. With CI=true that is a failure.
func orSay(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s: %v: run it as root on Linux with iproute2, with CAP_NET_ADMIN and CAP_SYS_ADMIN", what, err)
	}
	t.Skipf("cannot run here: %s: %v: it needs root on Linux with iproute2, with CAP_NET_ADMIN and CAP_SYS_ADMIN", what, err)
}

// host is a network namespace: a machine with one link to this one.
type host struct {
	name string // of the namespace, and of the link at its end here
	here string // address of this end
	at   string // address of the host
}

func command(words ...string) error {
	output, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, output)
	}
	return nil
}

// newHost makes a namespace and a link to it.
func newHost(t testing.TB) *host {
	t.Helper()
	n := os.Getpid() % (250 * 60)
	net := fmt.Sprintf("10.213.%d.%d", n/60, n%60*4)
	h := &host{name: fmt.Sprintf("berth%d", os.Getpid()), here: lastByte(net, 1), at: lastByte(net, 2)}
	t.Cleanup(func() { _ = command("ip", "netns", "del", h.name) }) // the link goes with it; it may not have come to be
	orSay(t, "make a network namespace", command("ip", "netns", "add", h.name))
	orSay(t, "make a link to it", command("ip", "link", "add", h.name, "type", "veth", "peer", "name", "home", "netns", h.name))
	for _, words := range []string{
		"ip addr add " + h.here + "/30 dev " + h.name,
		"ip link set " + h.name + " up",
		"ip -n " + h.name + " addr add " + h.at + "/30 dev home",
		"ip -n " + h.name + " link set home up",
		"ip -n " + h.name + " link set lo up",
	} {
		if err := command(strings.Fields(words)...); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// lastByte adds to the last number of an address that ends with a multiple of four.
func lastByte(address string, add int) string {
	i := strings.LastIndexByte(address, '.')
	var last int
	_, _ = fmt.Sscan(address[i+1:], &last) // it is a number
	return fmt.Sprintf("%s.%d", address[:i], last+add)
}

// run calls f on a thread that is in the namespace, so that the processes it starts are there too.
func (h *host) run(f func()) error {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)      // also when f ends the goroutine, as a failed test does
		runtime.LockOSThread() // for good: the thread ends with this goroutine, and nobody else gets into the namespace
		if err = h.enter(); err == nil {
			f()
		}
	}()
	<-done
	return err
}

// enter moves the calling thread to the namespace.
func (h *host) enter() error {
	ns, err := os.Open(filepath.Join("/var/run/netns", h.name))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }() // it was only read
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}

func (h *host) setLink(t testing.TB, state string) {
	t.Helper()
	if err := command("ip", "link", "set", h.name, state); err != nil {
		t.Fatal(err)
	}
}

// TestHostThatVanishesIsLostWithinSeconds cuts the only link of a worker's host: no connection is closed, no packet comes
// back. Its sessions go on elsewhere. When the link is back, the worker lets go of what moved and registers anew.
func TestHostThatVanishesIsLostWithinSeconds(t *testing.T) {
	t.Parallel()
	const limit = 15 * time.Second
	h := newHost(t)
	c := newCity(t, cityPlan{
		apis: 2, workers: 0, slots: 8, postgres: map[string]string{"listen_addresses": "127.0.0.1," + h.here},
	})
	c.admit(t, h.here+"/30")
	away := c.launchAt(t, h, c.name("away"))
	client := c.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: c.name("media")})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	r := c.call(t, "POST", "/v1/sessions", `{"id":"replaced","on_worker_loss":"replace"}`)
	lone := holdSocket(t, parse[talkPlacement](t, r))
	next := c.startWorker(t, c.name("next"), 8)

	h.setLink(t, "down")
	cut := time.Now()
	c.awaitState(t, away.id, "lost")
	lost := time.Since(cut)
	eventually(t, func() error {
		if row := c.owner(t, "replaced"); row.worker != next.id {
			return fmt.Errorf("the session is %v", row)
		}
		return nil
	})
	replaced := time.Since(cut)
	moved := peer.movedBeyond(t, placed.Generation)
	peer.flows(t)
	t.Logf("after the link went down: lost %.1f s, session replaced %.1f s, media of the other one back %.1f s; %s",
		lost.Seconds(), replaced.Seconds(), time.Since(cut).Seconds(), strings.Join(c.losses(t), "; "))
	if lost > limit {
		t.Errorf("lost after %v, want within %v", lost, limit)
	}

	h.setLink(t, "up")
	up := time.Now()
	c.awaitReady(t, away, away.instance)
	t.Logf("registered anew %.1f s after the link was up", time.Since(up).Seconds())
	eventually(t, func() error {
		if lone.open() == nil {
			return errors.New("the old owner still has the socket of a session that moved")
		}
		return nil
	})
	peer.flows(t)
	c.checkOwner(t, placed.ID, next.id, moved.Generation)
}

// admit lets a network connect to the city's server.
func (c *city) admit(t testing.TB, network string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(c.server.Dir(), "data", "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(file, "host all all %s scram-sha-256\n", network)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	administer(t, c.server, "select pg_reload_conf()")
}

// launchAt starts a worker on the host.
func (c *city) launchAt(t testing.TB, h *host, id string) (w *workerProcess) {
	t.Helper()
	here := c.DatabaseURL
	defer func() { c.DatabaseURL = here }()
	c.DatabaseURL = strings.Replace(here, "127.0.0.1", h.here, 1)
	err := h.run(func() {
		w = c.launchWorker(t, id, 8, "BERTH_SIGNALING_LISTEN="+h.at+":0", "BERTH_CONTROL_LISTEN="+h.at+":0", "BERTH_MEDIA_LISTEN="+h.at+":0")
	})
	if err != nil || w == nil {
		t.Fatalf("start a worker on the host: %v", err)
	}
	c.awaitReady(t, w, 0)
	return w
}
