package berth

import (
	"testing"
)

func TestASlowCallbackNeverMissesTheLastState(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	var seen []int64
	n := newNotifier(func(c StateChange) {
		if len(seen) == 0 {
			close(entered)
			<-release
		}
		seen = append(seen, c.Placement.Generation)
	})
	n.tell(StateChange{Placement: Placement{Generation: 0}})
	<-entered
	const last = 1000
	for g := int64(1); g <= last; g++ {
		n.tell(StateChange{Placement: Placement{Generation: g}})
	}
	close(release)
	n.stop()
	if len(seen) != 1+maxPendingStates || seen[len(seen)-1] != last {
		t.Errorf("saw %v", seen)
	}
	for i := 1; i < len(seen); i++ {
		if seen[i] <= seen[i-1] {
			t.Errorf("out of order: %v", seen)
		}
	}
}
