package berth

import "time"

// Sighting is one worker as one look of the reaper saw it, by the database's clock.
type Sighting struct {
	WorkerID   string
	Instance   Instance
	State      WorkerState
	ControlURL string
	Cordoned   bool
	Present    bool          // its presence lock is held
	Late       time.Duration // since its lease expired; negative while it runs
	GapOpen    bool
	GapAge     time.Duration // since the gap opened
}

// Tick is one run of the reaper. Its writes are void once another run began.
type Tick struct {
	Number int64
	Blind  bool // the last look is too old, or was at another server: nothing remembered counts
}

// Suspicion is a change of opinion about a worker, by the sessions that nobody reached on it or that were gone soon.
type Suspicion struct {
	WorkerID string
	Suspect  bool // false: it is cleared
	Faults   int
}

// Detection holds the numbers of failure detection.
type Detection struct {
	ConfirmDelay time.Duration // between the first sign and the look for other evidence
	PauseLimit   time.Duration // how late a worker that is present may be
	UnprovenWait time.Duration // how late a worker must be that is absent and whom no probe answers for
	Lease        time.Duration // the full term of a lease, which every worker gets after a blind tick
	BlindAfter   time.Duration // age of the last look at which nothing remembered counts
	DrainGrace   time.Duration // how long after its deadline a draining worker may still move its own sessions
}

// DefaultDetection is what a process uses unless it is told otherwise.
func DefaultDetection() Detection {
	return Detection{
		ConfirmDelay: 400 * time.Millisecond,
		PauseLimit:   45 * time.Second,
		UnprovenWait: 4 * time.Second,
		Lease:        6 * time.Second,
		BlindAfter:   2 * time.Second,
		DrainGrace:   2 * time.Second,
	}
}

// Step is what the reaper does next about one worker.
type Step string

// The steps of the reaper.
const (
	StepNone     Step = "none"
	StepOpenGap  Step = "open_gap"  // first sign that it is missing
	StepClearGap Step = "clear_gap" // it is back
	StepProbe    Step = "probe"     // its gap is old enough: ask it
	StepCordon   Step = "cordon"    // it is present but late: give it nothing new
	StepLose     Step = "lose"      // it is present but late beyond the pause limit
)

// Judge decides on one sighting. Presence that is gone opens a gap, and after the confirm delay the worker is asked.
// Presence that stays says that the process lives, so lateness alone only cordons it, up to the pause limit.
func (d Detection) Judge(s Sighting) Step {
	late := s.Late > 0
	switch {
	case !s.Present && !s.GapOpen:
		return StepOpenGap
	case !s.Present && s.GapAge >= d.ConfirmDelay:
		return StepProbe
	case !s.Present:
		return StepNone
	case late && s.Late >= d.PauseLimit && s.GapOpen:
		return StepLose
	case late && !s.GapOpen:
		return StepOpenGap
	case late && !s.Cordoned:
		return StepCordon
	case !late && s.GapOpen:
		return StepClearGap
	default:
		return StepNone
	}
}

// ProbeResult is what a worker's control address said of the instance that was looked for.
type ProbeResult string

// The results of a probe.
const (
	ProbeAlive   ProbeResult = "alive"   // it answered as the same instance
	ProbeDead    ProbeResult = "dead"    // refused, or another instance answered: proven
	ProbeUnknown ProbeResult = "unknown" // nothing answered in time
)

// Lost decides on a worker that is absent and was probed: a proven death at once, silence once its lease is late.
func (d Detection) Lost(s Sighting, probe ProbeResult) bool {
	return probe == ProbeDead || probe == ProbeUnknown && s.Late >= d.UnprovenWait
}
