package testkit

import (
	"errors"
	"testing"
	"time"
)

// Polling starts eagerly and backs off, so that short waits are short and long
// ones cheap.
const (
	firstPoll = time.Millisecond
	maxPoll   = 50 * time.Millisecond
)

// Eventually polls check until it returns nil, and fails the test with its last
// error when timeout is over. It is for what announces itself in no other way,
// such as another process's state; wait on channels where there are any. Call
// it from the test's goroutine.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for pause := firstPoll; ; pause = min(2*pause, maxPoll) {
		err := check()
		if err == nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-deadline.C:
			timer.Stop()
			t.Fatalf("not within %v: %v", timeout, err)
			return
		}
	}
}

// EventuallyTrue is Eventually for a condition that has nothing to say about
// itself; what describes it.
func EventuallyTrue(t testing.TB, timeout time.Duration, what string, check func() bool) {
	t.Helper()
	unmet := errors.New(what)
	Eventually(t, timeout, func() error {
		if check() {
			return nil
		}
		return unmet
	})
}
