package lab

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
	"slices"
	"strings"
	"syscall"
	"time"
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

// Child is a process that dies with this one. What it writes goes to a file, since a pipe would cost its reader time; what has
// a place of its own already stays out of it.
type Child struct {
	command *exec.Cmd
	output  *os.File
	done    chan struct{} // closed once the process is gone
	err     error         // how it ended; after done
}

// StartChild starts a process. The kernel signals it when the thread that started it ends, so a goroutine keeps its
// thread until the process is gone.
func StartChild(command *exec.Cmd) (*Child, error) {
	output, err := os.CreateTemp("", "berth-bench-*.log")
	if err != nil {
		return nil, err
	}
	// The open file is enough, and leaves nothing behind.
	if err := os.Remove(output.Name()); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	if command.Stdout == nil {
		command.Stdout = output
	}
	command.Stderr, command.SysProcAttr = output, DieWithParent()
	c := &Child{command: command, output: output, done: make(chan struct{})}
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

// PID is the process id.
func (c *Child) PID() int { return c.command.Process.Pid }

// Gone says whether the process ended, by itself or not.
func (c *Child) Gone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Stop signals the process and returns once it is gone. One that does not obey is killed.
func (c *Child) Stop(signal os.Signal) {
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

// Kill ends a process whose state is not needed any more.
func (c *Child) Kill() { c.Stop(syscall.SIGKILL) }

// Await asks until ready says so, and explains a process that ended or was not ready in time by what it wrote.
func (c *Child) Await(ctx context.Context, ready func(context.Context) bool) error {
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
func (c *Child) tail() string {
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

// Answers says whether an HTTP server is ready for requests.
func Answers(address string) func(context.Context) bool {
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

// FreeAddresses finds loopback ports that nobody listens on, by TCP.
func FreeAddresses(ctx context.Context, n int) ([]string, error) {
	var config net.ListenConfig
	var open []net.Listener
	var addresses []string
	var errs []error
	for range n {
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			errs = append(errs, err)
			break
		}
		open = append(open, listener)
		addresses = append(addresses, listener.Addr().String())
	}
	for _, listener := range open { // not before all are found, so that none is found twice
		errs = append(errs, listener.Close())
	}
	return addresses, errors.Join(errs...)
}

// Inherited is the environment of a child. It leaves out what configures Berth: a shell that is set up for a deployment must
// not lend its numbers.
func Inherited(environment []string) []string {
	own := func(variable string) bool { return strings.HasPrefix(variable, "BERTH_") }
	return slices.DeleteFunc(slices.Clone(environment), own)
}
