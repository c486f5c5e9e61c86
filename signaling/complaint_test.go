package signaling

import (
	"testing"
	"time"
)

func TestComplaintIsMadeAgainLaterWithTheNumberOfThoseUnsaid(t *testing.T) {
	t.Parallel()
	var c complaint
	now := time.Now()
	for i, want := range []struct {
		after  time.Duration
		unsaid int
		due    bool
	}{
		{0, 0, true},
		{time.Second, 0, false},
		{complaintEvery - 1, 0, false},
		{complaintEvery, 2, true},
		{complaintEvery + 1, 0, false},
		{2 * complaintEvery, 1, true},
	} {
		if unsaid, due := c.due(now.Add(want.after)); unsaid != want.unsaid || due != want.due {
			t.Errorf("%d: got %d, %v", i, unsaid, due)
		}
	}
}
