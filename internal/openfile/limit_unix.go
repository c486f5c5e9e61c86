//go:build unix

package openfile

import (
	"fmt"
	"math"
	"os"
	"syscall"
)

func raise() (Limit, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return Limit{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if l.Cur >= l.Max {
		return limitOf(l), nil
	}
	before := l
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return limitOf(before), fmt.Errorf("raise the limit of open files to %d: %w", limitOf(l).Hard, err)
	}
	return limitOf(l), nil
}

// limitOf makes numbers of RLIM_INFINITY too.
func limitOf(l syscall.Rlimit) Limit {
	return Limit{Soft: int(min(l.Cur, math.MaxInt32)), Hard: int(min(l.Max, math.MaxInt32))}
}

// used counts the files that are open now, as far as the system shows them in a directory.
func used() (int, bool) {
	dir, err := os.Open("/dev/fd") // on Linux a link to /proc/self/fd
	if err != nil {
		return 0, false
	}
	defer func() { _ = dir.Close() }() // read only: nothing can be lost
	names, err := dir.Readdirnames(-1)
	return len(names) - 1, err == nil // without the one that reads
}
