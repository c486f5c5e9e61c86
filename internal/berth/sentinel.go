package berth

import (
	"context"
	"time"
)

// Post is the connection of one sentinel. It is not safe for concurrent use, and any error of it is final.
type Post interface {
	// Take asks for the one lock of all sentinels, and reports false while another has it. Once it was taken it stays
	// until the connection ends, which the server sees to if nothing is asked of it for a while.
	Take(ctx context.Context) (bool, error)
	// Watch looks at all workers, and records that it looked.
	Watch(ctx context.Context) (Outlook, error)
	// Close gives the lock up with the connection.
	Close(ctx context.Context) error
}

// Outlook is what one look of the sentinel saw.
type Outlook struct {
	At        time.Time // by the database's clock
	Missing   []Instance
	NewGap    bool          // one of the missing has no gap yet, or none lately
	Ripe      bool          // a gap waits for its confirmation, and no tick began since it could be had
	Blind     bool          // the last look is too old, or was at another server
	SinceTick time.Duration // since the last tick began; zero: there was none
}

// Alarm is why a sentinel wakes the reaper.
type Alarm string

// The alarms.
const (
	AlarmNone    Alarm = "none"
	AlarmGap     Alarm = "gap"     // a worker is missing
	AlarmRipe    Alarm = "ripe"    // a gap was left behind by a tick that did not end
	AlarmBlind   Alarm = "blind"   // nobody looked for a while
	AlarmOverdue Alarm = "overdue" // the periodic ticks stay away
)

// Alarm decides on one outlook.
func (d Detection) Alarm(o Outlook) Alarm {
	switch {
	case o.Blind:
		return AlarmBlind
	case o.NewGap:
		return AlarmGap
	case o.Ripe:
		return AlarmRipe
	case o.SinceTick > d.Tick+d.Tick/2:
		return AlarmOverdue
	default:
		return AlarmNone
	}
}
