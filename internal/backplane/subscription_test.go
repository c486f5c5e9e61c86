package backplane

import (
	"errors"
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
