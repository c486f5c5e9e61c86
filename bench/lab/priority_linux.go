package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// manyClients are so many that their turns are a large part of all.
const manyClients = 1000

// GiveWay lets this process, which is so many clients, run only when no server wants the core, until end is called: in the world
// they are on machines of their own, and take no turn from the servers. Processes that are started meanwhile inherit it. A few
// clients take none worth giving up, and on a busy machine would never get one. Who may not take it back gives no way: gave
// says whether it does.
func GiveWay(clients int) (gave bool, end func() error, err error) {
	if clients < manyClients || !revocable() {
		return false, func() error { return nil }, nil
	}
	end = func() error { return schedule(unix.SCHED_NORMAL) }
	if err := schedule(unix.SCHED_IDLE); err != nil {
		return false, nil, errors.Join(err, end())
	}
	return true, end, nil
}

// revocable tries on a thread whether this process may leave SCHED_IDLE, which takes CAP_SYS_NICE or a limit; see sched(7). One
// that may not ends with its goroutine.
func revocable() bool {
	may := make(chan bool)
	go func() {
		runtime.LockOSThread()
		normal, idle := unix.SchedAttr{Size: unix.SizeofSchedAttr}, unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
		changed := unix.SchedSetAttr(0, &idle, 0) == nil
		left := changed && unix.SchedSetAttr(0, &normal, 0) == nil
		if left || !changed {
			runtime.UnlockOSThread()
		}
		may <- left
	}()
	return <-may
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
