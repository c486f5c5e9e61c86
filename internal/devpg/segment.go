//go:build linux || darwin

package devpg

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// detachTime is how long the children of a killed postmaster may take to notice.
const detachTime = 2 * time.Second

// removeSegment removes the small System V segment by which PostgreSQL guards a
// data directory. A killed postmaster leaves it, a kernel holds 4,096, and only
// the next server on the same directory would remove it. A segment that
// somebody is attached to stays: after a reboot its number may be another's.
func removeSegment(data string) error {
	killed, err := readPIDFile(data)
	if err != nil || killed.segment < 0 {
		return err
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for deadline := time.Now().Add(detachTime); time.Now().Before(deadline); <-ticker.C {
		var segment unix.SysvShmDesc
		if _, err := unix.SysvShmCtl(killed.segment, unix.IPC_STAT, &segment); err != nil {
			return ignoreMissing(err)
		}
		if segment.Nattch == 0 {
			_, err := unix.SysvShmCtl(killed.segment, unix.IPC_RMID, nil)
			return ignoreMissing(err)
		}
	}
	return nil
}

// ignoreMissing passes on what is worth telling: the segment may be gone
// already, or be that of another user.
func ignoreMissing(err error) error {
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIDRM) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return fmt.Errorf("remove shared memory segment: %w", err)
}
