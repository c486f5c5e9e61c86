package openfile

import (
	"errors"
	"math"
)

// Limit is how many files may be open at once.
type Limit struct {
	Soft int // counts
	Hard int // the most that Soft may be without privileges
}

// ErrUnknown means that this system does not say.
var ErrUnknown = errors.New("the limit of open files is not known on this system")

// Raise raises the soft limit to the hard one and returns what holds now. If it may not, it returns what holds with the
// error. Error: ErrUnknown.
func Raise() (Limit, error) { return raise() }

const (
	// leastReserve is what a process needs for everything but connections of clients: its database, listeners, health
	// checks, logs, handshakes that are under way.
	leastReserve = 128
	reserveShare = 16
)

// Room is how many connections of clients fit under the limit, with a sixteenth of it, and at least 128, left for
// everything else. An unknown limit has no room to speak of: zero.
func (l Limit) Room() int {
	if l.Soft <= 0 {
		return 0
	}
	return max(1, l.Soft-max(leastReserve, l.Soft/reserveShare))
}

// Need is the smallest limit that has room for that many connections.
func Need(connections int) int {
	return max(connections+leastReserve, int(math.Ceil(float64(connections)*reserveShare/(reserveShare-1))))
}
