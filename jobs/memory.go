package jobs

import (
	"slices"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// memory is what a process remembers of its own looks, for the timings of log lines and for distrust of clocks. Nothing
// is decided by it that a successor would need. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	seen  map[berth.Instance]time.Time // when each was last seen
	all   time.Time                    // when all but the missing were last seen
	gaps  map[berth.Instance]time.Time // when a gap was opened here that nobody has ended here
	clock berth.Reading
}

func newMemory() *memory {
	return &memory{seen: map[berth.Instance]time.Time{}, gaps: map[berth.Instance]time.Time{}}
}

// looked remembers who was seen by the reaper, and forgets who is no longer to be seen.
func (m *memory) looked(workers []berth.Sighting, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.seen
	m.seen = make(map[berth.Instance]time.Time, len(workers))
	for _, w := range workers {
		if !w.Missing {
			m.seen[w.Instance] = at
		} else if last, known := before[w.Instance]; known {
			m.seen[w.Instance] = last
		} else if !m.all.IsZero() {
			m.seen[w.Instance] = m.all
		}
	}
}

// watched remembers a look of the sentinel, which names the missing only.
func (m *memory) watched(missing []berth.Instance, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, instance := range missing {
		if _, known := m.seen[instance]; !known && !m.all.IsZero() {
			m.seen[instance] = m.all
		}
	}
	m.all = at
	for instance := range m.seen {
		if !slices.Contains(missing, instance) {
			m.seen[instance] = at
		}
	}
}

// unseen is how long a worker has not been seen; zero: not known.
func (m *memory) unseen(instance berth.Instance) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, known := m.seen[instance]; known {
		return time.Since(last)
	}
	return 0
}

// opened remembers a gap.
func (m *memory) opened(instance berth.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gaps[instance] = time.Now()
}

// ended forgets a gap, and says how long it was known here; false: it was not.
func (m *memory) ended(instance berth.Instance) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, known := m.gaps[instance]
	delete(m.gaps, instance)
	return time.Since(since), known
}

// forget drops all gaps: a blind tick ended them.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.gaps)
}

// stepped notes a reading of the database's clock, and says whether a clock was moved since the one before.
func (m *memory) stepped(reading berth.Reading, tolerance time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	stepped := berth.Stepped(m.clock, reading, tolerance)
	m.clock = reading
	return stepped
}
