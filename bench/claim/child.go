package claim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

const (
	// readyWait is how long a process may take to answer.
	readyWait = 20 * time.Second
	// stopWait is how long a process may take to stop when asked.
	stopWait = 40 * time.Second
	// readyPoll is how often it is asked whether it is ready.
	readyPoll = 10 * time.Millisecond
	// maxTail is how much of what a process wrote is quoted when it fails, in bytes.
	maxTail = 2 << 10
)

// child is a process that dies with this one. What it writes goes to a file, since a pipe would cost its reader time.
type child struct {
	command *exec.Cmd
	output  *os.File
	done    chan struct{} // closed once the process is gone
	err     error         // how it ended; after done
}

// startChild starts a process. The kernel signals it when the thread that started it ends, so a goroutine keeps its
// thread until the process is gone.
func startChild(command *exec.Cmd) (*child, error) {
	output, err := os.CreateTemp("", "berth-bench-*.log")
	if err != nil {
		return nil, err
	}
	// The open file is enough, and leaves nothing behind.
	if err := os.Remove(output.Name()); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	command.Stdout, command.Stderr, command.SysProcAttr = output, output, lab.DieWithParent()
	c := &child{command: command, output: output, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			c.err = command.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", command.Path, err), output.Close())
	}
	return c, nil
}

func (c *child) pid() int { return c.command.Process.Pid }

// stop signals the process and returns once it is gone. One that does not obey is killed.
func (c *child) stop(signal os.Signal) {
	_ = c.command.Process.Signal(signal) // it may be gone already
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		_ = c.command.Process.Kill() // as above
		<-c.done
	}
	_ = c.output.Close() // nobody reads it any more
}

// kill ends a process whose state is not needed any more.
func (c *child) kill() { c.stop(syscall.SIGKILL) }

// await asks until ready says so, and explains a process that ended or was not ready in time by what it wrote.
func (c *child) await(ctx context.Context, ready func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for !ready(ctx) {
		select {
		case <-c.done:
			return fmt.Errorf("%s ended: %w: %s", c.command.Path, c.err, c.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", c.command.Path, ctx.Err(), c.tail())
		case <-time.After(readyPoll):
		}
	}
	return nil
}

// tail is the end of what the process wrote.
func (c *child) tail() string {
	info, err := c.output.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(0, info.Size()-maxTail)
	text, err := io.ReadAll(io.NewSectionReader(c.output, from, maxTail))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text))
}

// answers says whether an HTTP server is ready for requests.
func answers(address string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
		if err != nil {
			return false
		}
		request.Close = true // a connection that is kept would count among those of the measurement
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close() // its status is all that matters
		return response.StatusCode == http.StatusOK
	}
}

// freeAddress finds a loopback port that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func portOf(address string) (int, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}
