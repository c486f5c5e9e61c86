//go:build !linux

package main

import "syscall"

// dieWithParent cannot promise it here: only Linux signals children of a parent that was killed. Workers notice that
// their database is gone and stop at the hold limit.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
