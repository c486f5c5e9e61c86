package devpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// quitGrace is how long a postmaster may take after SIGQUIT. It gives its own
// children five seconds before it kills them.
const quitGrace = 7 * time.Second

// process is a child that dies with its parent.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the child is reaped
	err  error         // of Wait; to be read after done
}

// spawn starts cmd; the kernel sends it onDeath if this process dies first.
//
// The parent death signal belongs to the thread that forked, and Go ends idle
// threads as it likes. So the goroutine that starts the child keeps its thread
// until the child is gone. The signal survives the change of user because Go
// sets it after setuid, and exec of a plain binary keeps it.
func spawn(cmd *exec.Cmd, onDeath syscall.Signal) (*process, error) {
	dieWithParent(cmd, onDeath)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(p.done)
		untether := tetherIfNeeded(cmd.Process.Pid, onDeath)
		defer untether()
		p.err = cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run starts cmd and waits for it. A child that outlives ctx is killed.
func run(ctx context.Context, cmd *exec.Cmd) error {
	p, err := spawn(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.signal(syscall.SIGKILL)
		<-p.done
		return ctx.Err()
	}
}

// signal is best effort: a process that has ended is not an error to anybody
// who then waits for done.
func (p *process) signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

// exited reports whether the child was reaped.
func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends a postmaster: politely with first, firmly once ctx is over. It
// returns after the process is reaped, in any case.
func (p *process) stop(ctx context.Context, first syscall.Signal) error {
	p.signal(first)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.quit()
		return fmt.Errorf("server had to be stopped by force: %w", ctx.Err())
	}
}

// quit ends a postmaster within quitGrace, by SIGKILL if need be.
func (p *process) quit() {
	p.signal(syscall.SIGQUIT)
	timer := time.NewTimer(quitGrace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}
