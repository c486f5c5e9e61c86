package backplane

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// ledger is how many members the database has of one topic of a process, and the statements that tell it, which commit in any
// order, or fail, or only seem to.
type ledger struct {
	streams *streams
	s       *stream
	row     int
	trouble bool // statements may fail
	counts  []*telling
	rounds  []*telling // of the reader: one at most
}

// telling is a statement under way.
type telling struct {
	members   int
	committed bool
	streams   []*stream // of a count
	numbers   []int
	tasks     []task // of a registration
}

func newLedger(t *rapid.T) *ledger {
	l := &ledger{streams: newStreams()}
	l.streams.listen()
	var err error
	if l.s, _, err = l.streams.enter("t"); err != nil {
		t.Fatal(err)
	}
	l.Register(t)
	l.Commit(t)
	l.End(t)
	return l
}

func (l *ledger) Join(t *rapid.T) {
	if _, _, err := l.streams.enter("t"); err != nil {
		t.Fatal(err)
	}
}

func (l *ledger) Leave(*rapid.T) {
	if l.s.refs > 1 {
		l.streams.release(l.s)
	}
}

// Resync has interest made anew.
func (l *ledger) Resync(*rapid.T) { l.streams.resync(true) }

func (l *ledger) Count(*rapid.T) {
	if len(l.counts) > 0 {
		return
	}
	if streams, _, numbers := l.streams.recounted(); len(streams) > 0 {
		l.counts = []*telling{{members: numbers[0], streams: streams, numbers: numbers}}
	}
}

func (l *ledger) Register(*rapid.T) {
	if len(l.rounds) > 0 {
		return
	}
	if tasks := l.streams.tasks(); len(tasks) > 0 {
		l.rounds = []*telling{{members: tasks[0].members, tasks: tasks, committed: !tasks[0].register}}
	}
}

// Commit ends a statement in the database.
func (l *ledger) Commit(t *rapid.T) {
	under := append(append([]*telling{}, l.counts...), l.rounds...)
	if len(under) == 0 {
		return
	}
	if one := under[rapid.IntRange(0, len(under)-1).Draw(t, "which")]; !one.committed {
		one.committed, l.row = true, one.members
	}
}

// End ends a statement for the process, which may learn nothing of its outcome.
func (l *ledger) End(t *rapid.T) {
	fails := l.trouble && rapid.Bool().Draw(t, "fails")
	if len(l.counts) > 0 && (l.counts[0].committed || fails) && rapid.Bool().Draw(t, "count") {
		var err error
		if fails {
			err = errors.New("away")
		}
		l.streams.counted(l.counts[0].streams, l.counts[0].numbers, err)
		l.counts = nil
		return
	}
	if len(l.rounds) == 0 || !l.rounds[0].committed && !fails {
		return
	}
	tasks := l.rounds[0].tasks
	l.rounds = nil
	if fails {
		l.streams.returned(tasks, errors.New("away"))
		return
	}
	l.streams.registered(tasks, map[string]Position{"t": {Epoch: "epoch-000000000001"}})
	l.streams.served(l.s, false)
}

// Rest lets everything come to its end. Then the database has as many as there are.
func (l *ledger) Rest(t *rapid.T) {
	for round := 0; ; round++ {
		l.Count(t)
		l.Register(t)
		if len(l.counts)+len(l.rounds)+len(l.streams.queue)+len(l.streams.uneven) == 0 {
			break
		}
		if round == 10_000 {
			t.Fatal("no rest")
		}
		l.Commit(t)
		l.End(t)
	}
	if l.row != l.s.refs {
		t.Fatalf("the database has %d members of %d", l.row, l.s.refs)
	}
}

// Counts and registrations run beside each other, and either may be the last to commit.
func TestMembersAreExactInTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(t)
		l.trouble = true
		t.Repeat(map[string]func(*rapid.T){
			"join": l.Join, "leave": l.Leave, "resync": l.Resync, "count": l.Count, "register": l.Register,
			"commit": l.Commit, "commit more": l.Commit, "end": l.End, "end more": l.End,
		})
		l.trouble = false
		l.Rest(t)
	})
}
