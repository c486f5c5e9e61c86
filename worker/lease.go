package worker

import "time"

// lease is the worker's own view of its right to its sessions. Only the keeper's goroutine uses it.
type lease struct {
	from  time.Time // just before the last renewal that was answered "yours" was sent
	term  time.Duration
	hold  time.Duration // how long silence is borne
	awake func() time.Time
	now   func() time.Time
}

func (l *lease) renewed(from time.Time) { l.from = from }

// doubtful: the lease is over as far as we know. It counts from waking, since a pause says nothing about the database.
func (l *lease) doubtful() bool { return l.since() >= l.term }

// silent: nobody answered for the hold limit.
func (l *lease) silent() bool { return l.since() >= l.hold }

// end is when the lease is over, pauses included.
func (l *lease) end() time.Time { return l.from.Add(l.term) }

// over: the lease is over, pauses included: somebody else may act by now.
func (l *lease) over() bool { return !l.now().Before(l.end()) }

func (l *lease) since() time.Duration {
	from := l.from
	if awake := l.awake(); awake.After(from) {
		from = awake
	}
	return l.now().Sub(from)
}
