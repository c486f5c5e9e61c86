package backplane

import (
	"fmt"
	"slices"
	"testing"
)

// Processes of different versions must agree on where a topic is.
func TestPlacesOfTopicsNeverChange(t *testing.T) {
	t.Parallel()
	var got []int
	for _, topic := range []string{"t", "call:1", "call:2", "tenant/chat", "tenant/inbox/u1"} {
		got = append(got, place(topic, 1), place(topic, 3), place(topic, 8))
	}
	if want := []int{0, 2, 4, 0, 2, 4, 0, 1, 1, 0, 1, 5, 0, 2, 5}; !slices.Equal(got, want) {
		t.Errorf("places %v, want %v", got, want)
	}
}

func TestTopicsSpreadAndMoveOnlyToTheNewDatabase(t *testing.T) {
	t.Parallel()
	const topics = 20_000
	for databases := 1; databases <= 8; databases++ {
		counts := make([]int, databases+1)
		for i := range topics {
			topic := fmt.Sprint("topic-", i)
			before, after := place(topic, databases), place(topic, databases+1)
			if before != after && after != databases {
				t.Fatalf("%s moves from %d to %d of %d", topic, before, after, databases+1)
			}
			counts[after]++
		}
		for number, n := range counts {
			if mean := topics / (databases + 1); n < mean*9/10 || n > mean*11/10 {
				t.Errorf("database %d of %d has %d topics of %d", number, databases+1, n, topics)
			}
		}
	}
}
