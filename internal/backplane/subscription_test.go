package backplane

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// While history is read, the stream brings more than may be held; or less; or the same again.
func TestReplayMissesNothingOfAStreamOfAnySize(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := history{epoch: "one", first: 1, last: 10}
		var given []Message
		sub := &Subscription{topic: "t", holding: true, deliver: func(m Message) { given = append(given, m) }}
		told := h.last - rapid.Int64Range(0, 10).Draw(t, "late")
		publish := func(some ...int64) {
			h.last += rapid.SampledFrom(some).Draw(t, "more")
			for ; told < h.last; told++ {
				sub.offer(h.message(told + 1))
			}
		}
		bursts := 2
		err := sub.begin(&Position{Epoch: "one"}, func(after int64) (page, error) {
			p := page{epoch: h.epoch, first: 1, last: h.last}
			for offset := after + 1; offset <= h.last && offset <= after+500; offset++ {
				p.messages = append(p.messages, h.message(offset))
			}
			if bursts > 0 {
				publish(0, 1, 50, 51, 2*maxHeld)
				bursts--
			}
			return p, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		publish(0, 10)
		if given[0].Recovery.Outcome != Complete {
			t.Fatalf("opened with %+v", given[0])
		}
		if end := account(t, given[0].Position, given[1:]); end.Offset != h.last || len(given) != 1+int(h.last) {
			t.Fatalf("given %d, to %+v of %d", len(given), end, h.last)
		}
	})
}

// What is held is bounded by its size as well: 1,024 of the largest messages would be 64 MiB for each subscriber that resumes.
func TestReplayHoldsFewBytes(t *testing.T) {
	t.Parallel()
	large := make([]byte, MaxData)
	var given []int64
	sub := &Subscription{topic: "t", holding: true, deliver: func(m Message) {
		if !m.Notice() {
			given = append(given, m.Position.Offset)
		}
	}}
	message := func(offset int64) Message {
		return Message{Topic: "t", Position: Position{Epoch: "one", Offset: offset}, Data: large}
	}
	last, most := int64(0), 0
	err := sub.begin(&Position{Epoch: "one"}, func(after int64) (page, error) {
		p := page{epoch: "one", first: 1, last: last}
		for offset := after + 1; offset <= last; offset++ {
			p.messages = append(p.messages, message(offset))
		}
		for range 3 * maxHeldBytes / MaxData {
			if last == 30 {
				break
			}
			last++
			sub.offer(message(last))
			held := 0
			for _, m := range sub.held {
				held += len(m.Data)
			}
			most = max(most, held)
		}
		return p, nil
	})
	if err != nil || most > maxHeldBytes {
		t.Errorf("held %d bytes: %v", most, err)
	}
	if want := numbersTo(last); !slices.Equal(given, want) {
		t.Errorf("given %v, want %v", given, want)
	}
}

func numbersTo(last int64) (numbers []int64) {
	for n := int64(1); n <= last; n++ {
		numbers = append(numbers, n)
	}
	return numbers
}

func TestReplayThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	reads := 0
	sub := &Subscription{topic: "t", holding: true, deliver: func(Message) {}}
	err := sub.begin(&Position{Epoch: "one"}, func(int64) (page, error) {
		reads++
		if reads > 1 {
			return page{}, away
		}
		return page{epoch: "one", first: 1, last: 2, messages: []Message{history{epoch: "one"}.message(1)}}, nil
	})
	if !errors.Is(err, away) {
		t.Error(err)
	}
}
