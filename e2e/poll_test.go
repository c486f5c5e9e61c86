package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// interval is how often what another process does is looked at.
const interval = 20 * time.Millisecond

// finalError is an error that more looks would not change.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// poll looks until check returns nil or limit is over, and returns its last error. Where there is a test, eventually says
// it better.
func poll(limit time.Duration, check func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil || errors.As(err, new(finalError)) {
			return err
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

// eventually polls and fails the test.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	if err := poll(patience, check); err != nil {
		t.Fatal(err)
	}
}
