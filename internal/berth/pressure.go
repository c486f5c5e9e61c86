package berth

import "time"

// Pressure is what weighs on the database.
type Pressure struct {
	OldestTransaction time.Duration // that is open and may be seen
	OldestXmin        int64         // transactions begun since the oldest snapshot that holds vacuum back
	Waiters           int           // starts that wait for capacity
}
