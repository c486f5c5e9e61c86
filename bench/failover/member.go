package failover

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

const (
	// readyWait is how long a process may take to be ready.
	readyWait = 30 * time.Second
	// readyPoll is how often it is looked at meanwhile.
	readyPoll = 10 * time.Millisecond
)

// member is one process of a scene, in all its lives: its id, addresses and environment stay the same.
type member struct {
	id          string
	command     string // api or worker
	binary      string
	address     string // of its HTTP server: the API's, or a worker's control address
	environment []string
	hear        func(at time.Time, line []byte)

	process  *process
	instance int64       // of a worker that is ready
	began    time.Time   // when this life was started, by the wall clock
	ready    time.Time   // when it was ready, by the wall clock
	away     atomic.Bool // killed or stopped by a fault
}

// start begins a life. It does not wait until it is ready.
func (m *member) start() error {
	command := exec.Command(m.binary, m.command) //nolint:noctx // it lives until somebody kills it
	command.Env = append(lab.Inherited(os.Environ()), m.environment...)
	m.began = time.Now()
	var err error
	m.process, err = startProcess(command, m.hear)
	return err
}

// await asks until ready says so, and explains a process that ended or was not ready in time by what it wrote.
func (m *member) await(ctx context.Context, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for !ready(ctx) {
		select {
		case <-m.process.done:
			return fmt.Errorf("%s ended: %w: %s", m.id, m.process.err, m.process.said())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", m.id, ctx.Err(), m.process.said())
		case <-time.After(readyPoll):
		}
	}
	m.ready = time.Now()
	m.away.Store(false)
	return nil
}

// kill is a fault: it returns without waiting for the end.
func (m *member) kill() {
	m.away.Store(true)
	m.process.signal(syscall.SIGKILL)
}

// stop is a fault, too.
func (m *member) stop() {
	m.away.Store(true)
	m.process.signal(syscall.SIGSTOP)
}

// resume ends a stop.
func (m *member) resume() {
	m.process.signal(syscall.SIGCONT)
	m.away.Store(false)
}

// answers says whether the member's HTTP server is ready for requests.
func (m *member) answers(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.address+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close() // its status is all that matters
	return response.StatusCode == http.StatusOK
}
