package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// manyClients are so many that their turns are a large part of all.
const manyClients = 1000

// GiveWay lets this process, which is so many clients, run only when no server wants the core, until end is called: in the world
// they are on machines of their own, and take no turn from the servers. Processes that are started meanwhile inherit it. A few
// clients take none worth giving up, and on a busy machine would never get one. Only root can take it back, so that for others
// nothing changes.
func GiveWay(clients int) (end func() error, err error) {
	if clients < manyClients || os.Geteuid() != 0 {
		return func() error { return nil }, nil
	}
	return func() error { return schedule(unix.SCHED_NORMAL) }, schedule(unix.SCHED_IDLE)
}

// schedule sets the scheduling policy of all threads, see sched(7): Linux has one for each, and a thread begins with that of
// its maker.
func schedule(policy uint32) error {
	for range 2 { // a thread may have been made meanwhile by one that had the old one
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return fmt.Errorf("thread %q: %w", thread.Name(), err)
			}
			attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy}
			if err := unix.SchedSetAttr(id, &attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("scheduling policy of thread %d: %w", id, err)
			}
		}
	}
	return nil
}
