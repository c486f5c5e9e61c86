package berth

import "time"

// Detector names a design of failure detection: the evidence by which a worker counts as missing at first.
type Detector string

// The detectors. docs/failure-detection.md says when to use which.
const (
	DetectPresence Detector = "presence" // its presence lock is gone; confirmed by asking it
	DetectLease    Detector = "lease"    // its lease is over; confirmed by the next look
	DetectSweep    Detector = "sweep"    // it did not answer when all were asked; confirmed by the next look
)

// Detection holds the numbers of failure detection.
type Detection struct {
	Detector     Detector
	Tick         time.Duration // period of the reaper
	Watch        time.Duration // period of the sentinel's looks; zero: there is no sentinel
	ConfirmDelay time.Duration // between the first sign and the look for other evidence
	PauseLimit   time.Duration // how late a worker that is present may be
	UnprovenWait time.Duration // how late a worker must be that is absent and whom no probe answers for
	Lease        time.Duration // the full term of a lease, which every worker gets after a blind tick
	BlindAfter   time.Duration // age of the last look at which nothing remembered counts
	ClockStep    time.Duration // how far the database's clock may move against ours before nothing remembered counts
	DrainGrace   time.Duration // how long after its deadline a draining worker may still move its own sessions

	// WalkSessions lets every look read every live session as well, as designs do that keep no workers' rows. It
	// decides nothing, and is there to compare costs.
	WalkSessions bool
}

// DefaultDetection is what a process uses unless it is told otherwise.
func DefaultDetection() Detection {
	return Detection{
		Detector:     DetectPresence,
		Tick:         time.Second,
		Watch:        100 * time.Millisecond,
		ConfirmDelay: 400 * time.Millisecond,
		PauseLimit:   45 * time.Second,
		UnprovenWait: 4 * time.Second,
		Lease:        6 * time.Second,
		BlindAfter:   2 * time.Second,
		ClockStep:    time.Second,
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
	StepConfirm  Step = "confirm"   // its gap is old enough: look for other evidence
	StepCordon   Step = "cordon"    // it is not missing but late: give it nothing new
	StepLose     Step = "lose"      // it is not missing but late beyond the pause limit
)

// Judge decides on one sighting. A worker that is missing gets a gap, and after the confirm delay other evidence is
// looked for. One that is not missing lives, so lateness alone only cordons it, up to the pause limit.
func (d Detection) Judge(s Sighting) Step {
	late := s.Late > 0
	switch {
	case s.Missing && !s.GapOpen:
		return StepOpenGap
	case s.Missing && s.GapAge >= d.ConfirmDelay:
		return StepConfirm
	case s.Missing:
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

// Ripens says how long to wait for the next look about a worker that is missing and not yet to be confirmed; zero:
// nothing waits.
func (d Detection) Ripens(s Sighting) time.Duration {
	switch {
	case !s.Missing:
		return 0
	case !s.GapOpen:
		return d.ConfirmDelay
	default:
		return max(0, d.ConfirmDelay-s.GapAge)
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

// Verdict is what other evidence made of a worker that was missing.
type Verdict string

// The verdicts.
const (
	VerdictAlive  Verdict = "alive"  // its gap is cleared
	VerdictOpen   Verdict = "open"   // not known yet: its gap stays
	VerdictDead   Verdict = "dead"   // lost, and proven
	VerdictSilent Verdict = "silent" // lost, and unproven: see Overwhelming
)

// Probed decides on a worker that is absent and was probed: a proven death at once, silence once its lease is late.
func (d Detection) Probed(s Sighting, probe ProbeResult) Verdict {
	switch {
	case probe == ProbeAlive:
		return VerdictAlive
	case probe == ProbeDead:
		return VerdictDead
	case probe == ProbeUnknown && s.Late >= d.UnprovenWait:
		return VerdictSilent
	default:
		return VerdictOpen
	}
}

// Overwhelming says that so many unproven losses at once, of so many workers, rather speak against who looked: more
// than half, and at least three. A look over a fresh connection must agree then. Proven deaths are not counted.
func (d Detection) Overwhelming(unproven, workers int) bool {
	return unproven >= 3 && 2*unproven > workers
}
