package devpg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// processesIn lists the processes whose working directory is data, as that of
// each process of a server is.
func processesIn(t *testing.T, data string) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || strings.TrimSuffix(target, " (deleted)") != data {
			continue // ended meanwhile, or another's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually polls until what returns nil.
func eventually(t *testing.T, what func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := what()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-ticker.C:
		}
	}
}

func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// startOwner runs a server in a process of its own.
func startOwner(t *testing.T, cfg Config) (*exec.Cmd, owned) {
	t.Helper()
	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	owner := reexec(t, ownerVar, string(config))
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, owner) })
	var report owned
	if err := json.NewDecoder(stdout).Decode(&report); err != nil {
		t.Fatal(err)
	}
	return owner, report
}

// kill ends a process as kill -9 does, and reaps it. Killing twice is fine.
func kill(t *testing.T, owner *exec.Cmd) {
	t.Helper()
	if err := owner.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = owner.Wait() // reports the kill
}

func serverGone(t *testing.T, data string) func() error {
	t.Helper()
	return func() error {
		if pids := processesIn(t, data); len(pids) != 0 {
			return fmt.Errorf("processes %v still run in %s", pids, data)
		}
		return nil
	}
}

func TestKilledOwnerLeavesNoProcessAndNextStartCleansUp(t *testing.T) {
	t.Parallel()
	root := tempRoot(t)
	owner, report := startOwner(t, Config{TempDir: root})
	data := filepath.Join(report.Dir, "data")
	if len(processesIn(t, data)) < 2 {
		t.Fatalf("no server seen in %s", data)
	}

	kill(t, owner)
	began := time.Now()
	eventually(t, serverGone(t, data))
	t.Logf("server gone %v after its owner", time.Since(began))
	if _, err := os.Stat(report.Scratch); err != nil {
		t.Fatalf("the stale directory is needed for this test: %v", err)
	}

	start(t, Config{TempDir: root})
	if _, err := os.Stat(report.Scratch); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stale directory: %v", err)
	}
}

// Where the kernel does not end the server, or before it has, the next start
// must. A frozen server is one that has not obeyed yet.
func TestNextStartStopsAnOrphan(t *testing.T) {
	t.Parallel()
	root := tempRoot(t)
	owner, report := startOwner(t, Config{TempDir: root})
	data := filepath.Join(report.Dir, "data")
	before, err := readPIDFile(data)
	if err != nil || before.segment < 0 {
		t.Fatalf("no shared memory segment: %+v, %v", before, err)
	}
	freeze(t, report.PID)
	kill(t, owner)

	start(t, Config{TempDir: root})
	eventually(t, serverGone(t, data))
	if _, err := unix.SysvShmCtl(before.segment, unix.IPC_STAT, new(unix.SysvShmDesc)); ignoreMissing(err) != nil || err == nil {
		t.Errorf("shared memory segment %d is still there: %v", before.segment, err)
	}
	if _, err := os.Stat(report.Scratch); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stale directory: %v", err)
	}
}

// The pid in a stale postmaster.pid may belong to somebody else by now.
func TestOrphanIsOnlyWhatThisPackageStarted(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, bystander) })
	text := strconv.Itoa(bystander.Process.Pid) + "\n" + data + "\n"
	if err := os.WriteFile(filepath.Join(data, "postmaster.pid"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stopOrphan(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the bystander was killed: %v", err)
	}
}
