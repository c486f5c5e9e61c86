package backplane

import (
	"testing"

	"pgregory.net/rapid"
)

// history is a topic as the database has it: some messages were trimmed.
type history struct {
	epoch       string
	first, last int64
}

func drawHistory(t *rapid.T) history {
	last := rapid.Int64Range(0, 30).Draw(t, "last")
	return history{
		epoch: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "epoch"),
		first: rapid.Int64Range(1, last+1).Draw(t, "first"), last: last,
	}
}

// read is a page after an offset, as short as it likes.
func (h history) read(t *rapid.T, after int64) page {
	p := page{epoch: h.epoch, first: h.first, last: h.last}
	limit := rapid.IntRange(1, 5).Draw(t, "limit")
	for offset := max(after+1, h.first); offset <= h.last && len(p.messages) < limit; offset++ {
		p.messages = append(p.messages, h.message(offset))
	}
	return p
}

func (h history) message(offset int64) Message {
	return Message{Topic: "t", Position: Position{Epoch: h.epoch, Offset: offset}, Data: []byte("x")}
}

// account fails unless each offset after from is given once, in order, as a message or as missing.
func account(t *rapid.T, from Position, given []Message) Position {
	at := from
	for _, m := range given {
		switch m.Recovery.Outcome {
		case Reset:
			if m.Position.Epoch == at.Epoch {
				t.Fatalf("reset to the same epoch: %+v", m)
			}
		case Partial:
			if m.Recovery.Missing.From != at.Offset+1 || m.Recovery.Missing.To != m.Position.Offset ||
				m.Recovery.Missing.To < m.Recovery.Missing.From {
				t.Fatalf("at %+v: %+v", at, m)
			}
		default:
			if m.Position != (Position{Epoch: at.Epoch, Offset: at.Offset + 1}) {
				t.Fatalf("at %+v: %+v", at, m)
			}
		}
		at = m.Position
	}
	return at
}

func TestFollowingAccountsForEveryOffset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		from := Position{
			Epoch:  rapid.SampledFrom([]string{"one", "two"}).Draw(t, "of"),
			Offset: rapid.Int64Range(0, h.last).Draw(t, "from"),
		}
		at := from
		var given []Message
		for behind, rounds := true, 0; behind; rounds++ {
			if rounds > 40 {
				t.Fatalf("no end at %+v of %+v", at, h)
			}
			var more []Message
			more, behind = at.follow("t", h.read(t, at.Offset))
			given = append(given, more...)
		}
		if end := account(t, from, given); end != at || at != (Position{Epoch: h.epoch, Offset: h.last}) {
			t.Fatalf("from %+v to %+v of %+v: %+v", from, at, h, given)
		}
	})
}

// A stream says again what a subscriber has read for itself, or says it in other portions.
func TestAdmittingAccountsForEveryOffset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		stream := Position{
			Epoch:  rapid.SampledFrom([]string{"one", "two"}).Draw(t, "of"),
			Offset: rapid.Int64Range(0, h.last).Draw(t, "stream"),
		}
		from := Position{Epoch: h.epoch, Offset: rapid.Int64Range(0, h.last).Draw(t, "from")}
		if stream.Epoch == h.epoch {
			from.Offset = max(from.Offset, stream.Offset)
		}
		var told []Message
		for behind := true; behind; {
			var more []Message
			more, behind = stream.follow("t", h.read(t, stream.Offset))
			told = append(told, more...)
		}
		at := from
		var given []Message
		for _, m := range append(told, told...) {
			if m, news := at.admit(m); news {
				given = append(given, m)
			}
		}
		if end := account(t, from, given); end != at || at.Offset != h.last {
			t.Fatalf("from %+v to %+v of %+v: %+v", from, at, h, given)
		}
	})
}

func TestResumeOpensWhereItGoesOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t)
		from := Position{
			Epoch:  rapid.SampledFrom([]string{"one", "two"}).Draw(t, "of"),
			Offset: rapid.Int64Range(0, 40).Draw(t, "from"),
		}
		opening := from.resume("t", h.read(t, from.Offset))
		switch {
		case from.Epoch != h.epoch || from.Offset > h.last:
			if opening.Recovery.Outcome != Reset || opening.Position != (Position{Epoch: h.epoch, Offset: h.last}) {
				t.Fatalf("%+v", opening)
			}
		case from.Offset+1 < h.first:
			want := Recovery{Outcome: Partial, Missing: Range{From: from.Offset + 1, To: h.first - 1}}
			if opening.Recovery != want || opening.Position.Offset != h.first-1 {
				t.Fatalf("%+v", opening)
			}
		default:
			if opening.Recovery.Outcome != Complete || opening.Position != from {
				t.Fatalf("%+v", opening)
			}
		}
	})
}
