package backplane_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/testkit"
)

// asProcess in the environment makes the test binary a process that subscribes: to topic "t" of the database that it names.
const asProcess = "BACKPLANE_AS_PROCESS"

// beProcess subscribes, and says what it is given in lines, until its input ends.
func beProcess(ctx context.Context, url string, input io.Reader, output io.Writer) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	bus, err := backplane.New(backplane.Config{Pool: pool, DirectURL: url})
	if err != nil {
		return err
	}
	if err := bus.Start(ctx); err != nil {
		return err
	}
	defer bus.Close()
	lines := make(chan backplane.Message, 1<<16)
	if _, err := bus.Subscribe(ctx, "t", nil, func(m backplane.Message) { lines <- m }); err != nil {
		return err
	}
	go func() {
		for m := range lines {
			fmt.Fprintln(output, m.Position.Offset, m.Opening, m.Recovery.Missing.From, m.Recovery.Outcome)
		}
	}()
	_, err = io.Copy(io.Discard, input)
	return err
}

// process is another process that subscribes to topic "t".
type process struct {
	t       *testing.T
	command *exec.Cmd
	lines   chan string
}

// startProcess starts one, which has subscribed, and kills it when the test ends.
func startProcess(t *testing.T, db *testkit.DB) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, command: exec.Command(self), lines: make(chan string, 1<<16)}
	p.command.Env = append(os.Environ(), asProcess+"="+db.URL)
	p.command.Stderr = os.Stderr
	input, err := p.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill() // it may be dead already
		_ = input.Close()
		<-done
		_ = p.command.Wait() // says that it was killed
	})
	var offset int64
	var opening bool
	if _, err := fmt.Sscan(p.line(), &offset, &opening); err != nil || !opening {
		t.Fatalf("began with %d, %v: %v", offset, opening, err)
	}
	return p
}

// line is the next thing that the process is given.
func (p *process) line() string {
	p.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the process ended")
		}
		return line
	case <-timer.C:
		p.t.Fatalf("the process says nothing for %v", patience)
		return ""
	}
}

func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
}

// follow reads what the process is given until it is at an offset. Every offset must be given or named as missing.
func (p *process) follow(next, until int64) (missing int64) {
	p.t.Helper()
	for next <= until {
		var offset, from int64
		var opening bool
		var outcome backplane.Outcome
		line := p.line()
		_, _ = fmt.Sscan(line, &offset, &opening, &from, &outcome) // a message has no outcome, and then that is missing
		switch {
		case outcome == backplane.Partial && from == next:
			missing += offset - from + 1
		case outcome != "" || offset != next:
			p.t.Fatalf("given %q where %d is next", line, next)
		}
		next = offset + 1
	}
	return missing
}
