package devpg

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent asks the kernel to send sig to the child when the thread that
// starts it ends.
func dieWithParent(cmd *exec.Cmd, sig syscall.Signal) { cmd.SysProcAttr.Pdeathsig = sig }

// tetherIfNeeded does nothing: the kernel watches.
func tetherIfNeeded(int, syscall.Signal) (release func()) { return func() {} }

// commandLine returns the arguments of a process joined by spaces, empty if it
// is gone or a zombie.
func commandLine(pid int) string {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '}))
}
