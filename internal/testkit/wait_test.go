package testkit

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventuallyReturnsOnceTheCheckPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		Eventually(t, time.Minute, func() error {
			if calls++; time.Since(began) < time.Second {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(began); took > time.Second+maxPoll || calls > 40 {
			t.Errorf("took %v and %d calls", took, calls)
		}
	})
}

func TestEventuallyFailsWithTheLastError(t *testing.T) {
	t.Parallel()
	began := time.Now()
	failures := onSpy(t, func(tb testing.TB) {
		tb.Helper()
		EventuallyTrue(tb, 10*time.Millisecond, "the door is open", func() bool { return false })
		t.Error("went on")
	})
	if !strings.Contains(failures, "not within 10ms: the door is open") {
		t.Errorf("got %q", failures)
	}
	if took := time.Since(began); took < 10*time.Millisecond {
		t.Errorf("gave up after %v", took)
	}
}
