package berth

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func loadsOf(connections ...int) []WorkerLoad {
	loads := make([]WorkerLoad, len(connections))
	for i, n := range connections {
		loads[i] = WorkerLoad{WorkerID: fmt.Sprintf("w%d", i), Instance: Instance(i + 1), Connections: n}
	}
	return loads
}

func TestPlanMoves(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		loads []int
		want  map[string]int
	}{
		"nobody":                          {nil, nil},
		"one worker":                      {[]int{5000}, nil},
		"equal":                           {[]int{100, 100, 100}, nil},
		"within the slack":                {[]int{110, 100, 90}, nil},
		"idle":                            {[]int{0, 0}, nil},
		"after scale-out":                 {[]int{10000, 10000, 0}, map[string]int{"w0": 200, "w1": 200}},
		"no more than what is above mean": {[]int{1000, 800, 800}, map[string]int{"w0": 20}},
		"less than one is none":           {[]int{40, 10, 10}, nil},
		"one of many":                     {[]int{50000, 10000, 10000, 10000}, map[string]int{"w0": 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got map[string]int
			for _, move := range PlanMoves(loadsOf(test.loads...)) {
				if got == nil {
					got = map[string]int{}
				}
				got[move.WorkerID] = move.Count
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// However loads are, a plan moves little, only from those above the mean, and leaves nobody below it; repeated, it ends.
func TestPlanMovesConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loads := loadsOf(rapid.SliceOfN(rapid.IntRange(0, 100_000), 1, 20).Draw(t, "loads")...)
		total := 0
		for _, load := range loads {
			total += load.Connections
		}
		mean := float64(total) / float64(len(loads))
		for round := 0; ; round++ {
			moves := PlanMoves(loads)
			if len(moves) == 0 {
				break
			}
			if round > 2000 {
				t.Fatalf("still moving after %d rounds: %v", round, loads)
			}
			shed := 0
			for _, move := range moves {
				load := &loads[move.Instance-1]
				if load.WorkerID != move.WorkerID || float64(move.Count) > 0.02*float64(load.Connections) {
					t.Fatalf("%+v of %+v", move, load)
				}
				load.Connections -= move.Count
				if float64(load.Connections) < mean {
					t.Fatalf("%+v is below the mean %v", load, mean)
				}
				shed += move.Count
			}
			for ; shed > 0; shed-- { // to the least loaded, as placement prefers
				least := 0
				for i := range loads {
					if loads[i].Connections < loads[least].Connections {
						least = i
					}
				}
				loads[least].Connections++
			}
		}
		for _, load := range loads {
			if n := float64(load.Connections); n > mean*rebalanceSlack && n >= 1/maxShedFraction && n-mean >= 1 {
				t.Fatalf("%+v is far above the mean %v", load, mean)
			}
		}
	})
}
