package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Evidence, as gaps, log lines and metrics name it: first signs, and what confirms them.
const (
	evidencePresence = "presence_gone"
	evidenceLate     = "lease_late"
	evidenceNoAnswer = "no_answer"

	evidenceRefused = "probe_refused"
	evidenceSilent  = "lease_over_and_silent"
	evidencePaused  = "pause_limit"
	evidenceOver    = "lease_over_twice"
	evidenceAbsent  = "no_answer_twice"
)

// confirmations lists what confirms a loss.
func confirmations() []string {
	return []string{evidenceRefused, evidenceSilent, evidencePaused, evidenceOver, evidenceAbsent}
}

// Detector is a design of failure detection. It says who is missing, and by which other evidence that is confirmed; what
// follows is the reaper's (berth.Detection.Judge). It is safe for concurrent use.
type Detector interface {
	// Look sees every serving worker, and marks those that are missing.
	Look(ctx context.Context, look berth.Look) (Sight, error)
	// Confirm looks for other evidence about a worker whose gap is old enough, and names what it found.
	Confirm(ctx context.Context, s berth.Sighting) (berth.Verdict, string)
}

// Sight is what a detector saw, and how much it looked at for it beside workers.
type Sight struct {
	berth.View

	Sockets  int // descriptions of connections that were read
	Sessions int // live sessions that were read
	Orphans  int // of those, whose owner is missing
}

// LookStore reads what detectors go by; internal/postgres documents the methods.
type LookStore interface {
	Look(ctx context.Context, look berth.Look) (berth.View, error)
	WalkSessions(ctx context.Context) ([]berth.Owned, error)
}

// Prober asks a worker who it is.
type Prober interface {
	Probe(ctx context.Context, sighting berth.Sighting) berth.ProbeResult
}

// Asker asks a worker who it is and which sockets it holds. now is the database's time.
type Asker interface {
	Ask(ctx context.Context, sighting berth.Sighting, now time.Time) Answer
}

// NewDetector makes the detector that detection names. It uses the prober or the asker, and not the other.
func NewDetector(detection berth.Detection, store LookStore, prober Prober, asker Asker) (Detector, error) {
	var detector Detector
	switch detection.Detector {
	case berth.DetectPresence:
		detector = presence{store: store, prober: prober, detection: detection}
	case berth.DetectLease:
		detector = lease{store: store}
	case berth.DetectSweep:
		detector = sweep{store: store, asker: asker, detection: detection}
	default:
		return nil, fmt.Errorf("unknown detector %q: it is presence, lease or sweep", detection.Detector)
	}
	if detection.WalkSessions {
		detector = walk{Detector: detector, store: store}
	}
	return detector, nil
}

// mark says of each worker of a view whether it is missing.
func mark(view berth.View, sign string, missing func(i int, s berth.Sighting) bool) berth.View {
	for i := range view.Workers {
		if missing(i, view.Workers[i]) {
			view.Workers[i].Missing, view.Workers[i].Sign = true, sign
		}
	}
	return view
}

// presence: who is missing has lost its presence lock, which a dead process does at once and a paused one never. It is
// asked then, since a lock proves a connection and no process.
type presence struct {
	store     LookStore
	prober    Prober
	detection berth.Detection
}

// Look reads the presence locks.
func (p presence) Look(ctx context.Context, look berth.Look) (Sight, error) {
	look.Presence = true
	view, err := p.store.Look(ctx, look)
	return Sight{View: mark(view, evidencePresence, func(_ int, s berth.Sighting) bool { return !s.Present })}, err
}

// Confirm asks the worker.
func (p presence) Confirm(ctx context.Context, s berth.Sighting) (berth.Verdict, string) {
	verdict := p.detection.Probed(s, p.prober.Probe(ctx, s))
	switch verdict {
	case berth.VerdictDead:
		return verdict, evidenceRefused
	case berth.VerdictSilent:
		return verdict, evidenceSilent
	default:
		return verdict, ""
	}
}

// lease: who is missing has not renewed in time. A second look that finds the lease still over confirms it.
type lease struct {
	store LookStore
}

// Look reads the leases.
func (l lease) Look(ctx context.Context, look berth.Look) (Sight, error) {
	view, err := l.store.Look(ctx, look)
	return Sight{View: mark(view, evidenceLate, func(_ int, s berth.Sighting) bool { return s.Late > 0 })}, err
}

// Confirm has its evidence: the sighting is that of the second look.
func (lease) Confirm(context.Context, berth.Sighting) (berth.Verdict, string) {
	return berth.VerdictSilent, evidenceOver
}

// walk reads every live session beside what its detector does, and looks up its owner.
type walk struct {
	Detector

	store LookStore
}

// Look walks over the sessions. What it finds orphaned is what the reaper finds by index, so it decides nothing.
func (w walk) Look(ctx context.Context, look berth.Look) (Sight, error) {
	sight, err := w.Detector.Look(ctx, look)
	if err != nil {
		return sight, err
	}
	serving := make(map[berth.Instance]bool, len(sight.Workers))
	for _, s := range sight.Workers {
		serving[s.Instance] = !s.Missing
	}
	sessions, err := w.store.WalkSessions(ctx)
	for _, s := range sessions {
		if s.WorkerID != "" && !serving[s.Instance] {
			sight.Orphans++
		}
	}
	sight.Sessions = len(sessions)
	return sight, err
}
