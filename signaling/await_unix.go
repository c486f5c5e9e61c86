//go:build unix

package signaling

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isReadable reports whether a read of the file would not block: there are bytes, or the end of them, or an error.
func isReadable(fd uintptr) bool {
	one := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(one, 0)
		if !errors.Is(err, unix.EINTR) {
			return n != 0 || err != nil
		}
	}
}
