//go:build !linux

package lab

import "syscall"

// DieWithParent cannot promise it here: only Linux signals children of a parent that was killed.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
