package devpg

import (
	"errors"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The tether replaces the kernel on other systems than Linux, but is plain
// enough to be tested on any.
func TestTetherSignalsWhenItsOwnerDies(t *testing.T) {
	t.Parallel()
	watched := exec.Command("sleep", "60")
	if err := watched.Start(); err != nil {
		t.Fatal(err)
	}
	owner := startTetherOwner(t, watched.Process.Pid)
	kill(t, owner)
	err := watched.Wait()
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.Error() != "signal: quit" {
		t.Errorf("the watched process ended with %v", err)
	}
}

func TestReleasedTetherDoesNotSignal(t *testing.T) {
	t.Parallel()
	watched := exec.Command("sleep", "60")
	if err := watched.Start(); err != nil {
		t.Fatal(err)
	}
	release, err := tether(watched.Process.Pid, syscall.SIGQUIT)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if err := watched.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the watched process: %v", err)
	}
	kill(t, watched)
}

// startTetherOwner runs a process that tethers pid and waits to be killed.
func startTetherOwner(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	owner := reexec(t, tetherVar, strconv.Itoa(pid))
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, owner) })
	timer := time.AfterFunc(20*time.Second, func() { _ = owner.Process.Kill() })
	defer timer.Stop()
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return owner
}
