//go:build !linux

package failover

import "syscall"

// dieWithParent cannot promise it here: only Linux signals children of a parent that was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
