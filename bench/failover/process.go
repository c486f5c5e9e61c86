package failover

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

const (
	// tailLines is how many lines of what a process wrote are kept, to explain its end.
	tailLines = 12
	// maxLine bounds one line of a log.
	maxLine = 1 << 20
)

// process is a child that dies with this process, and whose lines are read as they come.
type process struct {
	command *exec.Cmd
	done    chan struct{} // closed once the child is gone and its last line was read
	err     error         // how it ended; after done

	mu   sync.Mutex // guards tail
	tail []string
}

// startProcess starts a child and hands each line of its stderr to hear, with the time at which it came. The kernel
// signals the child when the thread that started it ends, so a goroutine keeps its thread until the child is gone.
func startProcess(command *exec.Cmd, hear func(at time.Time, line []byte)) (*process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	command.Stderr, command.SysProcAttr = write, lab.DieWithParent()
	p := &process{command: command, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		_ = write.Close() // the child has it
		started <- err
		if err != nil {
			return
		}
		p.read(read, hear)
		p.err = command.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", command.Path, err), read.Close())
	}
	return p, nil
}

// read ends when the child does, which has the only other end.
func (p *process) read(pipe io.ReadCloser, hear func(at time.Time, line []byte)) {
	defer func() { _ = pipe.Close() }() // nothing was written to it
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		at := time.Now()
		hear(at, lines.Bytes())
		p.mu.Lock()
		if p.tail = append(p.tail, lines.Text()); len(p.tail) > tailLines {
			p.tail = p.tail[1:]
		}
		p.mu.Unlock()
	}
}

// signal sends one to the child, which may be gone already.
func (p *process) signal(signal syscall.Signal) { _ = p.command.Process.Signal(signal) }

// kill ends the child and returns once it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// said is the end of what the child wrote.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.tail, "\n")
}
