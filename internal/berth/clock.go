package berth

import "time"

// Reading is one reading of the database's clock. It showed At at some moment between Before and After by our
// monotonic clock.
type Reading struct {
	At            time.Time
	Before, After time.Time
}

// readingLife is how long a reading says something about the next: two sound clocks drift apart by less than a
// millisecond a second.
const readingLife = time.Minute

// Stepped says whether one of the clocks was certainly moved by more than tolerance between two readings, whatever
// time the readings themselves took, and pauses of this process within them.
func Stepped(first, second Reading, tolerance time.Duration) bool {
	least, most := second.Before.Sub(first.After), second.After.Sub(first.Before)
	if first.At.IsZero() || second.At.IsZero() || most > readingLife {
		return false
	}
	passed := second.At.Sub(first.At)
	return passed > most+tolerance || passed < max(least, 0)-tolerance
}
