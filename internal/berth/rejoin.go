package berth

import "time"

// RejoinOutcome says what a rejoin found.
type RejoinOutcome string

// The outcomes of a rejoin.
const (
	RejoinCurrent RejoinOutcome = "current" // the owner is well, or a newer placement exists already
	RejoinPlaced  RejoinOutcome = "placed"  // this call placed it anew
	RejoinHold    RejoinOutcome = "hold"    // the owner is in question: wake the reaper, ask again shortly
)

// RejoinHoldLimit is how long a rejoin is held while its owner is in question.
const RejoinHoldLimit = 5 * time.Second

// RejoinAnswer is the outcome of a rejoin, with the placement unless it is held.
type RejoinAnswer struct {
	Outcome   RejoinOutcome
	Placement Placement
	Left      string // the worker that it was taken from although it lives, and may not know yet; empty: none. Also with an error
}
