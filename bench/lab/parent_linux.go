package lab

import "syscall"

// DieWithParent makes the kernel kill a child when the thread that started it ends. A group of its own keeps the
// terminal's Ctrl-C from the child: it is stopped by its parent.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
