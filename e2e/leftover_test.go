package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// leftovers describes the processes that carry dir in their environment or on their command line. It needs /proc; where
// there is none it finds nothing, and alive is what is left to ask.
func leftovers(dir string) []string {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	var found []string
	for _, path := range commands {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() || !alive(pid) {
			continue
		}
		command, _ := os.ReadFile(path)                                             // it may just have ended
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ")) // others' are not readable
		if bytes.Contains(command, []byte(dir)) || bytes.Contains(environment, []byte(dir)) {
			found = append(found, fmt.Sprintf("pid %d: %s", pid, bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
	}
	return found
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
