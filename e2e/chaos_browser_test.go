//go:build chaos

package e2e

import (
	"testing"
	"time"
)

// TestPausesOfEveryLengthLoseNoBrowsersSession pauses the owner again and again, for as long as a pause may last.
func TestPausesOfEveryLengthLoseNoBrowsersSession(t *testing.T) {
	t.Parallel()
	s := newStack(t, "--workers", "2")
	for _, d := range []time.Duration{5 * time.Second, 8 * time.Second, 10 * time.Second, 12 * time.Second, 30 * time.Second} {
		openPatient(t, s).survives(t, d)
	}
}
