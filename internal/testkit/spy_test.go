package testkit

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// spy is a test that may fail without failing the one that it belongs to.
type spy struct {
	testing.TB

	ctx      context.Context // stands for the test's own
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// onSpy runs a test body and its cleanups, and returns what it failed with.
func onSpy(t *testing.T, body func(testing.TB)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &spy{TB: t, ctx: ctx}
	var done sync.WaitGroup
	done.Go(func() { body(s) }) // Fatalf ends this goroutine
	done.Wait()
	cancel()
	for _, cleanup := range slices.Backward(s.cleanups) {
		cleanup()
	}
	return strings.Join(s.failures, "\n")
}

func (s *spy) Context() context.Context { return s.ctx }
func (s *spy) Cleanup(f func())         { s.cleanups = append(s.cleanups, f) }

func (s *spy) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Sprintf(format, args...))
}

func (s *spy) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}
