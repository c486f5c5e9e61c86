package api

import (
	"testing"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/backplane"
)

// TestScenario_W18_OldOffsetOfATopicThatBeganAnew: offsets of the old history and of the new one have nothing in common.
func TestScenario_W18_OldOffsetOfATopicThatBeganAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.fill(4, `"old"`)
	old := r.publish("a", `"old"`)
	r.store.backplane.Forget()
	r.fill(8, `"new"`)
	position := formatTopicPosition(backplane.Position{Epoch: old.Epoch, Offset: old.Offset})
	l := r.listen(followA, r.tenant, position)
	if s := l.opens(wire.Reset, 8, 0, 0); s.Epoch == old.Epoch {
		t.Errorf("goes on in the old epoch: %+v", s)
	}
	r.fill(1, `"new"`)
	l.messages(9, 1) // and none of those that the old offset would have picked
}

// TestScenario_W20_AnswerToAResumeIsLost: the client resumes from where it was again, and again gets all of it.
func TestScenario_W20_AnswerToAResumeIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	epoch := r.publish("a", `1`).Epoch
	r.fill(9, `1`)
	position := formatTopicPosition(backplane.Position{Epoch: epoch, Offset: 3})
	for range 5 {
		l := r.listen(followA, r.tenant, position)
		l.opens(wire.Complete, 3, 0, 0)
		l.messages(4, 7)
		l.close()
	}
}

// TestScenario_W21_ResumeWithAnotherIdentity: a position opens nothing by itself.
func TestScenario_W21_ResumeWithAnotherIdentity(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	mine := r.place(`{"id":"mine","peer":{"topics":{"subscribe":["a"]}}}`)
	other := r.place(`{"id":"other","peer":{"topics":{"subscribe":["b"]}}}`)
	epoch := r.publish("a", `1`).Epoch
	from := "?from=" + epoch + ":0"
	l := r.listen(followA+from, mine.Token, "")
	l.opens(wire.Complete, 0, 0, 0)
	l.messages(1, 1)
	if a := r.call("GET", followA+from, other.Token, ""); a.status != 403 {
		t.Errorf("another peer: %d", a.status)
	}
	theirs := r.listen(followA+from, r.other, "") // their topic of that name, and nothing of this one
	theirs.opens(wire.Reset, 0, 0, 0)
	r.call("DELETE", "/v1/sessions/mine", r.tenant, "")
	if a := r.call("GET", followA+from, mine.Token, ""); a.status != 410 {
		t.Errorf("after its session: %d", a.status)
	}
	r.publish("a", `2`) // who had it is not disturbed
	l.messages(2, 1)
}
