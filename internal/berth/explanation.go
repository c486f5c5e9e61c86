package berth

import "time"

// Explanation says why a session is where it is, or is nowhere: what it looks for, who could have it now, who had it, and
// what its tenant was refused. It is a picture of one moment, for people.
type Explanation struct {
	At         time.Time        `json:"at"` // the database's clock
	TenantID   string           `json:"tenant_id"`
	SessionID  string           `json:"session_id"`
	Session    *ExplainedRow    `json:"session"` // nil: none of this id is live, or ended within the last day
	Queue      *QueuePlace      `json:"queue"`   // nil: no start of this id waits
	Search     Search           `json:"search"`
	Candidates []Candidate      `json:"candidates"` // those that fit first, in the order in which they would be chosen
	Owners     []Ownership      `json:"owners"`     // oldest first
	Refusals   []RefusalsOfTime `json:"refusals"`   // of the tenant lately, newest first
}

// ExplainedRow is the newest session of an id.
type ExplainedRow struct {
	Key             SessionKey   `json:"key"`
	State           SessionState `json:"state"`
	Region          string       `json:"region"`
	RequestedRegion string       `json:"requested_region,omitzero"` // empty: any
	WorkerID        string       `json:"worker_id,omitzero"`        // empty: it has no owner
	LastWorkerID    string       `json:"last_worker_id,omitzero"`   // that it lost
	Generation      Generation   `json:"generation"`
	CreatedAt       time.Time    `json:"created_at"`
	ConnectBy       time.Time    `json:"connect_by,omitzero"`
	RejoinBy        time.Time    `json:"rejoin_by,omitzero"`
	ExpiresAt       time.Time    `json:"expires_at"`
	EndedAt         time.Time    `json:"ended_at,omitzero"`
	EndedReason     EndedReason  `json:"ended_reason,omitzero"`
}

// QueuePlace is where a start stands that waits for capacity.
type QueuePlace struct {
	Turn          int       `json:"turn"` // 1 is next, over all regions
	Waiters       int       `json:"waiters"`
	Since         time.Time `json:"since"`
	Deadline      time.Time `json:"deadline"`
	OwnerPresent  bool      `json:"owner_present"` // false: its API process is gone, and it is passed over
	ReservedUntil time.Time `json:"reserved_until,omitzero"`
}

// Search is what a session asks of its worker.
type Search struct {
	Regions  []string          `json:"regions"` // in the order tried; empty: any
	Slots    int               `json:"slots"`
	Strategy Strategy          `json:"strategy"`
	Selector map[string]string `json:"selector,omitzero"`
}

// Candidate is a worker that the session could be placed on now, or that it could not.
type Candidate struct {
	WorkerID      string      `json:"worker_id"`
	Region        string      `json:"region"`
	State         WorkerState `json:"state"`
	Capacity      int         `json:"capacity"`
	Used          int         `json:"used"`
	Free          int         `json:"free"`                    // slots that a claim could take
	Rank          *float64    `json:"rank"`                    // of the slot it would get; the lowest wins. nil: it has none
	Fits          bool        `json:"fits"`                    // now
	Reason        string      `json:"reason,omitzero"`         // why it does not fit
	SuspectReason string      `json:"suspect_reason,omitzero"` // why it comes last
	SlowStart     bool        `json:"slow_start"`              // it is new, and gets its share by and by
	Avoided       bool        `json:"avoided"`                 // the session lost it last
	Owner         bool        `json:"owner"`                   // the session is here
}

// Ownership is one owner of a session, and what ended that.
type Ownership struct {
	Generation Generation `json:"generation"`
	WorkerID   string     `json:"worker_id"`
	Instance   Instance   `json:"instance"`
	Region     string     `json:"region"`
	Rank       float64    `json:"rank"` // of the slot it took: the worker's load with it
	From       time.Time  `json:"from"`
	Until      time.Time  `json:"until,omitzero"` // zero: it owns the session
	Cause      string     `json:"cause,omitzero"` // of the loss, or the reason for the end
	Ended      bool       `json:"ended"`          // with it, the session
	Gap        *Gap       `json:"gap"`            // that proved the loss of its worker, or is open now; nil: none
}

// Gap is the observation that a worker is missing, with its evidence.
type Gap struct {
	OpenedAt    time.Time `json:"opened_at"`
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"` // zero: it is open
	Evidence    string    `json:"evidence"`              // the first sign; what confirmed it
}

// RefusalsOfTime counts refused starts of one minute.
type RefusalsOfTime struct {
	Minute   time.Time `json:"minute"`
	Region   string    `json:"region,omitzero"` // asked for; empty: any
	Code     Code      `json:"code"`
	Refusals int64     `json:"refusals"`
}
