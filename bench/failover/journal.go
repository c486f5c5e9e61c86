package failover

import (
	"encoding/json"
	"sync"
	"time"
)

// The lines of API processes that tell what the reaper does.
const (
	lineGap      = "gap_opened"
	lineCleared  = "gap_cleared"
	lineLoss     = "loss_confirmed"
	lineNotified = "peer_notified"
)

// entry is one line of an API process about a worker.
type entry struct {
	at       time.Time // when it was read
	message  string
	workerID string
	instance int64
	evidence string
}

// journal collects what all API processes of a scene tell. It is safe for concurrent use.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

// hear takes a line of a log. Lines that are not about workers are passed over, and so is what is no JSON.
func (j *journal) hear(at time.Time, line []byte) {
	var text struct {
		Message  string `json:"msg"`
		WorkerID string `json:"worker_id"`
		Instance int64  `json:"instance"`
		Evidence string `json:"evidence"`
	}
	if json.Unmarshal(line, &text) != nil {
		return
	}
	switch text.Message {
	case lineGap, lineCleared, lineLoss, lineNotified:
	default:
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{
		at: at, message: text.Message, workerID: text.WorkerID, instance: text.Instance, evidence: text.Evidence,
	})
}

// mark is where the journal ends now.
func (j *journal) mark() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries)
}

// since returns what came after a mark with one of the messages.
func (j *journal) since(mark int, message string) []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []entry
	for _, e := range j.entries[mark:] {
		if e.message == message {
			found = append(found, e)
		}
	}
	return found
}

// first finds the first line of a message about an instance after a mark.
func (j *journal) first(mark int, message string, who life) (entry, bool) {
	for _, e := range j.since(mark, message) {
		if e.workerID == who.who.id && e.instance == who.instance {
			return e, true
		}
	}
	return entry{}, false
}
