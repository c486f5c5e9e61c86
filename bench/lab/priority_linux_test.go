package lab

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGivingWayIsTakenBack(t *testing.T) { //nolint:paralleltest // it is about the whole process
	gave, end, err := GiveWay(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if idle := idleThreads(t); gave != (idle > 0) {
		t.Errorf("gave way: %v, and %d threads are idle", gave, idle)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if idle := idleThreads(t); idle > 0 {
		t.Errorf("%d threads are idle", idle)
	}
}

// idleThreads is how many threads of this process run only when nobody else wants the core.
func idleThreads(t *testing.T) (idle int) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		attributes, err := unix.SchedGetAttr(id, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
		if err == nil && attributes.Policy == unix.SCHED_IDLE {
			idle++
		}
	}
	return idle
}
