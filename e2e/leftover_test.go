package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// running is a process as /proc shows it.
type running struct {
	pid         int
	command     []byte // words that end with a NUL
	environment []byte // likewise; empty for other users' processes
}

// all lists the processes of this machine but this one. It needs /proc; where there is none it finds nothing.
func all() []running {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	var found []running
	for _, path := range commands {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() || !alive(pid) {
			continue
		}
		p := running{pid: pid}
		p.command, _ = os.ReadFile(path)                                             // it may just have ended
		p.environment, _ = os.ReadFile(filepath.Join(filepath.Dir(path), "environ")) // likewise, or belong to another user
		found = append(found, p)
	}
	return found
}

// leftovers describes the processes that carry dir in their environment or on their command line.
func leftovers(dir string) []string {
	var found []string
	for _, p := range all() {
		if bytes.Contains(p.command, []byte(dir)) || bytes.Contains(p.environment, []byte(dir)) {
			found = append(found, fmt.Sprintf("pid %d: %s", p.pid, bytes.ReplaceAll(p.command, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// withSettings finds the processes that have every one of the variables in their environment.
func withSettings(variables ...string) []int {
	var pids []int
	for _, p := range all() {
		environment := append([]byte{0}, p.environment...)
		missing := func(v string) bool { return !bytes.Contains(environment, []byte("\x00"+v+"\x00")) }
		if !slices.ContainsFunc(variables, missing) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// alive reports whether a process runs. One that ended and was not waited for does not.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || !hasProc()
	}
	_, state, _ := bytes.Cut(status, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}
