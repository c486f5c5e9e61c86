package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// comeBack is how long a killed worker stays away, so that one can watch what its absence does.
	comeBack = 10 * time.Second
	// stopGrace is how long workers may take to drain when `berth dev` stops.
	stopGrace = 4 * time.Second

	// Ports below those that systems give to outgoing connections, so that a worker that is down finds its own free
	// when it comes back.
	firstPort = 20_000
	lastPort  = 32_000
)

// member is one worker process of a fleet. Its id, ports and URLs outlive the process.
type member struct {
	id        string
	signaling int
	control   int
	media     int

	mu      sync.Mutex // guards process
	process *os.Process
}

func (m *member) signalingURL() string { return fmt.Sprintf("ws://127.0.0.1:%d/rtc", m.signaling) }

func (m *member) pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return 0
	}
	return m.process.Pid
}

// environment is inherited (PATH, time zone, proxies) but for Berth's own variables: a shell that is set up for a
// deployment must not lend its database or its numbers to the workers alone. level is that of this process's logger.
func (m *member) environment(inherited []string, databaseURL, apiURL, level string) []string {
	port := func(n int) string { return "127.0.0.1:" + strconv.Itoa(n) }
	own := func(variable string) bool { return strings.HasPrefix(variable, "BERTH_") }
	return append(slices.DeleteFunc(slices.Clone(inherited), own),
		"BERTH_LOG_LEVEL="+level,
		"BERTH_DATABASE_URL="+databaseURL,
		"BERTH_API_URLS="+apiURL,
		"BERTH_WORKER_ID="+m.id,
		"BERTH_REGION="+devRegion,
		"BERTH_DEV=true",
		"BERTH_LOG_FORMAT=text",
		"BERTH_DRAIN_DEADLINE=1s",
		"BERTH_UPGRADE_RATE_PER_ADDRESS=0/s", // everybody is 127.0.0.1 here, load tests too
		"BERTH_SIGNALING_LISTEN="+port(m.signaling),
		"BERTH_SIGNALING_URL="+m.signalingURL(),
		"BERTH_CONTROL_LISTEN="+port(m.control),
		"BERTH_CONTROL_URL=http://"+port(m.control),
		"BERTH_MEDIA_LISTEN="+port(m.media),
		"BERTH_MEDIA_ANNOUNCE=127.0.0.1",
	)
}

func (m *member) kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := os.ErrProcessDone
	if m.process != nil {
		err = m.process.Kill()
	}
	if errors.Is(err, os.ErrProcessDone) {
		return berth.Refuse(berth.CodeConflict, "The worker is down already. It comes back by itself.")
	}
	return err
}

// fleet runs worker processes as children, which die with this process, and brings back those that are killed.
type fleet struct {
	members  []*member
	database string
	api      string // its URL
	level    string // of the workers' logs
	logger   *slog.Logger
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// startFleet starts n workers named w1 to wn. The API may come later.
func startFleet(ctx context.Context, n int, databaseURL, apiURL string, level slog.Level, logger *slog.Logger) (*fleet, error) {
	f := &fleet{database: databaseURL, api: apiURL, level: strings.ToLower(level.String()), logger: logger}
	taken := map[int]bool{}
	for i := range n {
		m := &member{id: "w" + strconv.Itoa(i+1)}
		for _, port := range []*int{&m.signaling, &m.control, &m.media} {
			free, err := freePort(ctx, taken)
			if err != nil {
				return nil, err
			}
			*port = free
		}
		f.members = append(f.members, m)
	}
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, m := range f.members {
		f.running.Go(func() { f.keep(ctx, m) })
	}
	return f, nil
}

// freePort finds a port that nobody listens on, by TCP or UDP.
func freePort(ctx context.Context, taken map[int]bool) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if taken[port] || !listenable(ctx, port) {
			continue
		}
		taken[port] = true
		return port, nil
	}
	return 0, errors.New("no free port for workers between 20000 and 32000 on 127.0.0.1")
}

func listenable(ctx context.Context, port int) bool {
	var config net.ListenConfig
	address := "127.0.0.1:" + strconv.Itoa(port)
	tcp, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return false
	}
	udp, err := config.ListenPacket(ctx, "udp", address)
	if err == nil {
		err = udp.Close()
	}
	return errors.Join(err, tcp.Close()) == nil
}

// keep runs one worker again and again until ctx ends.
func (f *fleet) keep(ctx context.Context, m *member) {
	for ctx.Err() == nil {
		err := f.run(ctx, m)
		if ctx.Err() != nil {
			return
		}
		f.logger.WarnContext(ctx, "worker process ended", "worker_id", m.id, "err", err, "back_in", comeBack)
		select {
		case <-ctx.Done():
		case <-time.After(comeBack):
		}
	}
}

// run is one life of a worker process. The kernel signals the child when the thread that started it ends, so this
// goroutine keeps its thread until the child is gone.
func (f *fleet) run(ctx context.Context, m *member) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own binary: %w", err)
	}
	command := exec.CommandContext(ctx, self, "worker")
	command.Env = m.environment(os.Environ(), f.database, f.api, f.level)
	command.Stderr = os.Stderr
	command.SysProcAttr = dieWithParent()
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopGrace
	if err := command.Start(); err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	m.mu.Lock()
	m.process = command.Process
	m.mu.Unlock()
	err = command.Wait()
	m.mu.Lock()
	m.process = nil
	m.mu.Unlock()
	return err
}

// Kill ends a worker's process as a crash would: SIGKILL, without a word to anybody.
func (f *fleet) Kill(_ context.Context, workerID string) error {
	for _, m := range f.members {
		if m.id != workerID {
			continue
		}
		return m.kill()
	}
	return berth.Refuse(berth.CodeNotFound, "There is no worker with this id here.")
}

// stop ends the workers and waits for them.
func (f *fleet) stop() {
	f.cancel()
	f.running.Wait()
}
