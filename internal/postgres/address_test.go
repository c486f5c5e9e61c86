package postgres_test

import (
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

// A worker that registers again says other things of itself, or for a moment nothing. Its instance is what it was, so what it
// serves goes on.
func TestScenario_C20_WorkerThatChangesItsAddressKeepsItsSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 4)
	serving, fresh := r.place(start("serving")).Session, r.place(start("fresh")).Session
	r.connect(serving, "c1")
	for _, url := range []string{"ws://elsewhere", "", "ws://w1"} {
		held, err := r.store.Register(t.Context(), berth.Registration{
			WorkerID: "w1", Instance: w.number, Region: "eu", Capacity: 4, SignalingURL: url, ControlURL: "http://w1", Lease: lease,
		})
		if err != nil || held {
			t.Fatalf("register at %q: held %v, %v", url, held, err)
		}
		r.ok(r.store.Open(t.Context(), "w1", w.number))
		for _, before := range []berth.Session{serving, fresh} {
			now := r.session(before.Key)
			if now.WorkerID != "w1" || now.Generation != before.Generation || now.Instance != w.number || now.SignalingURL != url {
				t.Errorf("at %q: got %+v, placed as %+v", url, now, before)
			}
		}
		r.expect(serving.Key, berth.SessionActive, "")
		r.expect(fresh.Key, berth.SessionAssigned, "")
		answer, err := r.store.Renew(t.Context(), berth.Renewal{
			WorkerID: "w1", Instance: w.number, Count: 1, Digest: berth.Digest([]berth.Held{heldOf(serving)}), Lease: lease,
		})
		if err != nil || answer.Verdict == berth.RenewalOver || !answer.Matched {
			t.Errorf("at %q: renewal answers %+v, %v", url, answer, err)
		}
		if n := read[int](r, "select count(*)::int from berth.gaps"); n > 0 {
			t.Errorf("at %q: %d gaps", url, n)
		}
	}
	if free := r.free(); free != 2 {
		t.Errorf("%d free slots, want 2", free)
	}
	if placed := r.place(start("next")).Session; placed.SignalingURL != "ws://w1" {
		t.Errorf("the next session is at %q", placed.SignalingURL)
	}
}
