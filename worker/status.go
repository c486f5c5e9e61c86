package worker

import (
	"sync/atomic"

	"github.com/berthdev/berth/internal/berth"
)

// phase is where the worker stands, for health checks and metrics; see the package comment.
type phase string

const (
	phaseRegistering phase = "registering"
	phaseServing     phase = "serving"
	phaseDoubt       phase = "in_doubt"
	phaseSilent      phase = "silent"
	phaseDraining    phase = "draining"
	phaseStopped     phase = "stopped"
)

// report is one consistent view of the worker.
type report struct {
	phase    phase
	instance berth.Instance // zero while registering
}

// status is the latest report: the keeper writes it, everybody may read it.
type status struct {
	current atomic.Pointer[report]
}

func newStatus() *status {
	s := &status{}
	s.store(report{phase: phaseRegistering})
	return s
}

func (s *status) load() report   { return *s.current.Load() }
func (s *status) store(r report) { s.current.Store(&r) }
