//go:build !linux

package devpg

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing: there is no parent death signal here, so
// tetherIfNeeded takes its place.
func dieWithParent(*exec.Cmd, syscall.Signal) {}

// tetherIfNeeded watches on behalf of a child. Without a shell to do so the
// next Start is the only clean-up.
func tetherIfNeeded(pid int, sig syscall.Signal) (release func()) {
	release, err := tether(pid, sig)
	if err != nil {
		return func() {}
	}
	return release
}

// commandLine returns the arguments of a process joined by spaces, empty if it
// is gone.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
