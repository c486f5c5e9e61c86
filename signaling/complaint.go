package signaling

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// complaintEvery is how often the log says that calls wait for the database.
const complaintEvery = 10 * time.Second

// complaint is of what all calls of a worker have in common, and would be said by each of them again and again. It is safe for
// concurrent use.
type complaint struct {
	mu     sync.Mutex // guards the rest
	last   time.Time
	unsaid int // since then
}

// note logs an attempt that failed, with the number of those before it that were not logged.
func (c *complaint) note(ctx context.Context, log *slog.Logger, key berth.SessionKey, err error) {
	if unsaid, due := c.due(time.Now()); due {
		log.WarnContext(ctx, "call not recovered, it tries again", "session_key", int64(key), "err", err, "unsaid", unsaid)
	}
}

// due reports whether one is to be logged now, and how many were not.
func (c *complaint) due(now time.Time) (unsaid int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.last) < complaintEvery {
		c.unsaid++
		return 0, false
	}
	unsaid, c.last, c.unsaid = c.unsaid, now, 0
	return unsaid, true
}
