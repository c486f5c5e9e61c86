package berth

import "time"

// WorkerState is where a worker stands in its life; see the package comment.
type WorkerState string

// The states of a worker.
const (
	WorkerStarting WorkerState = "starting"
	WorkerReady    WorkerState = "ready"
	WorkerDraining WorkerState = "draining"
	WorkerGone     WorkerState = "gone"
	WorkerLost     WorkerState = "lost"
)

// Serving reports whether a worker in this state holds a lease and may own sessions.
func (s WorkerState) Serving() bool {
	return s == WorkerStarting || s == WorkerReady || s == WorkerDraining
}

// Reasons for a cordon.
const (
	// CordonLeaseLate marks a worker that is present but did not renew in time: paused, most likely.
	CordonLeaseLate = "lease_late"
	// CordonDatabaseCut marks a worker that renews through an API replica, since it does not reach the database itself.
	CordonDatabaseCut = "database_cut"
)

// Limits of a worker.
const (
	MaxWorkerSlots   = 10_000
	MinDrainDeadline = time.Second
	MaxDrainDeadline = 24 * time.Hour
	// DefaultDrainDeadline is given to a drain call that names none.
	DefaultDrainDeadline = time.Hour
)

// Worker is one row of berth.workers with its lease and the use of its slots.
type Worker struct {
	ID             string
	Instance       Instance
	Region         string
	State          WorkerState
	CordonedReason string // empty: not cordoned
	Capacity       int    // slots
	Used           int    // slots taken
	SignalingURL   string // what clients connect to
	ControlURL     string // internal base URL: /livez, /nudge
	Version        string
	Labels         map[string]string // what selectors ask for
	SuspectReason  string            // why it is given sessions only when nothing else is free; empty: it is not
	RegisteredAt   time.Time
	DrainDeadline  time.Time // zero unless draining
	RenewedAt      time.Time // zero before the first lease
	LeaseExpiresAt time.Time
}

// Free is the number of slots that a claim could take now.
func (w Worker) Free() int {
	if w.State != WorkerReady || w.CordonedReason != "" {
		return 0
	}
	return max(0, w.Capacity-w.Used)
}
