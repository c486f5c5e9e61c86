package berth

import (
	"math"
	"time"
)

// ShedOrder asks a worker to close some of its signaling connections, so that they move to others.
type ShedOrder struct {
	Number    int64         // tells it from others of the instance; the database gives it
	Count     int           // connections to close, chosen at random; zero: none
	Spread    time.Duration // over which the closes are spread
	Automatic bool          // of the comparison of loads, which gives way to those of people
}

// WorkerLoad is how many signaling connections that can be moved a worker holds: those of calls.
type WorkerLoad struct {
	WorkerID    string
	Instance    Instance
	Connections int
}

const (
	// RebalanceInterval is how often load is compared.
	RebalanceInterval = 30 * time.Second
	// ShedSpread is over how long the closes of one order are spread.
	ShedSpread = 30 * time.Second
	// MaxShed is the most that people may order.
	MaxShed = 1_000_000
	// MaxShedSpread is the longest spread of such an order.
	MaxShedSpread = time.Hour
	// ShedWindow is within which a client that was shed is told to come back: the wait in a close frame is a random part.
	ShedWindow = 8 * time.Second

	// rebalanceSlack is how far above the mean a worker may be before it has to shed.
	rebalanceSlack = 1.10
	// maxShedFraction is the most that a worker sheds at once: a wrong plan must not empty it.
	maxShedFraction = 0.02
)

// PlanMoves says how many connections each worker should shed: those more than a tenth above the mean give up what
// they have above it, but no more than a fiftieth of theirs. Loads are those of workers that take connections, so
// that those that drain neither shed nor count. Workers that shed nothing are not in the plan.
//
// Source: "Scaling WebSocket servers, in depth", the rebalance controller.
func PlanMoves(loads []WorkerLoad) []Move {
	total := 0
	for _, load := range loads {
		total += load.Connections
	}
	mean := float64(total) / float64(max(1, len(loads)))
	var moves []Move
	for _, load := range loads {
		n := float64(load.Connections)
		if n <= mean*rebalanceSlack {
			continue
		}
		if count := int(math.Min(n-mean, n*maxShedFraction)); count > 0 {
			moves = append(moves, Move{WorkerID: load.WorkerID, Instance: load.Instance, Count: count})
		}
	}
	return moves
}

// Move is what one worker should shed.
type Move struct {
	WorkerID string
	Instance Instance
	Count    int
}
