package berth

import "time"

// Sighting is one worker as one look of the reaper saw it, by the database's clock.
type Sighting struct {
	WorkerID   string
	Instance   Instance
	State      WorkerState
	ControlURL string
	Cordoned   bool
	Present    bool          // its presence lock is held; true if the look did not read locks
	Late       time.Duration // since its lease expired; negative while it runs
	GapOpen    bool
	GapAge     time.Duration // since the gap opened
	GapUnseen  time.Duration // how long it had not been seen when the gap opened; zero: not known

	Missing bool   // by the evidence of the detector that looked
	Sign    string // what evidence that is; empty unless Missing
	Proven  bool   // that evidence leaves no doubt: only a second look is wanted
}

// Look is what the reaper asks the database to see.
type Look struct {
	Tick     int64
	Presence bool // read presence locks as well
	Fresh    bool // over a connection that was not there before
}

// View is what a look saw: every worker that should be serving.
type View struct {
	At      time.Time // by the database's clock
	Workers []Sighting
}

// Tick is one run of the reaper. Its writes are void once another run began.
type Tick struct {
	Number int64
	Blind  bool      // the last look is too old, or was at another server: nothing remembered counts
	At     time.Time // by the database's clock
}

// Owned is a live session and the worker instance that owns it.
type Owned struct {
	Key        SessionKey
	ID         string
	Generation Generation
	WorkerID   string // empty: none at the moment
	Instance   Instance
}

// Suspicion is a change of opinion about a worker, by the sessions that nobody reached on it or that were gone soon.
type Suspicion struct {
	WorkerID string
	Suspect  bool // false: it is cleared
	Faults   int
}
