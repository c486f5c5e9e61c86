package postgres_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// relay renews a worker as an API replica does in its name.
func (r *rig) relay(w instance) berth.RenewalAnswer {
	r.Helper()
	answer, err := r.store.Renew(r.Context(), berth.Renewal{WorkerID: w.id, Instance: w.number, Lease: lease, Relayed: true})
	r.ok(err)
	return answer
}

func (r *rig) cordon(id string) string {
	r.Helper()
	worker, err := r.store.Worker(r.Context(), id)
	r.ok(err)
	return worker.CordonedReason
}

func TestRelayedRenewalExtendsTheLeaseAndClearsTheGap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	r.late("w1")
	r.openGap(r.tick(), w, "presence_gone")
	if got := r.relay(w); got.Verdict != berth.RenewalYours || got.ExpiresAt.Sub(got.At) != lease || !got.Matched {
		t.Errorf("got %+v", got)
	}
	if seen := r.look(r.tick(), "w1"); seen.GapOpen || seen.Late > 0 {
		t.Errorf("got %+v", seen)
	}
}

func TestWorkerWhoseLinkIsCutGetsNothingNewUntilItRenewsItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	r.relay(w) // the database was slow, the link is there
	r.place(start("before"))
	r.vanish(w)
	for range 2 {
		r.relay(w)
	}
	if got := r.cordon("w1"); got != berth.CordonDatabaseCut {
		t.Fatalf("cordoned for %q", got)
	}
	r.placeRefused(berth.CodeAtCapacity, start("during"))
	answer, err := r.store.Renew(t.Context(), berth.Renewal{WorkerID: "w1", Instance: w.number, Lease: lease})
	if err != nil || answer.Verdict != berth.RenewalYours {
		t.Fatalf("got %+v, %v", answer, err)
	}
	r.place(start("after"))
}

func TestRelayedRenewalLeavesOtherCordonsAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	r.exec("update berth.workers set cordoned_reason = 'by hand' where id = 'w1'")
	r.exec("select berth.set_open('w1')")
	r.vanish(w)
	r.relay(w)
	if got := r.cordon("w1"); got != "by hand" {
		t.Errorf("cordoned for %q", got)
	}
}

func TestRelayedRenewalOfAnOldInstanceChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.worker("w1", 1)
	r.vanish(old)
	r.worker("w1", 1)
	if got := r.relay(old); got.Verdict != berth.RenewalReplaced {
		t.Errorf("got %+v", got)
	}
	if got := r.cordon("w1"); got != "" {
		t.Errorf("the new instance is cordoned for %q", got)
	}
	r.place(start("a"))
}

// F05: cut off from the database for a minute, reachable by HTTP: ticks open gaps, since presence is gone, and end them,
// since it answers as itself. It is never lost, whatever the order of ticks and renewals.
func TestWorkerThatOnlyReplicasReachIsNotLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	session := r.place(start("a")).Session
	r.connect(session, "c1")
	r.vanish(w)
	detection := berth.DefaultDetection()
	for second := range 60 {
		if second%2 == 0 {
			r.relay(w)
		}
		tick := r.tick()
		seen := r.look(tick, "w1")
		seen.Missing = !seen.Present // as the detector of presence has it
		switch step := detection.Judge(seen); step {
		case berth.StepOpenGap:
			r.openGap(tick, w, "presence_gone")
			r.exec("update berth.gaps set opened_at = opened_at - interval '1 second'")
		case berth.StepConfirm:
			if detection.Probed(seen, berth.ProbeUnknown) != berth.VerdictOpen {
				t.Fatalf("lost if no probe gets through, with its lease renewed: %+v", seen)
			}
			r.ok(r.store.ClearGap(t.Context(), tick.Number, w.id, w.number))
		case berth.StepNone:
		default:
			t.Fatalf("second %d: %s for %+v", second, step, seen)
		}
	}
	r.expect(session.Key, berth.SessionActive, "")
	if got := r.session(session.Key); got.Generation != session.Generation {
		t.Errorf("got %+v", got)
	}
}

func TestRenewalSecretsOfTheLastInstancesAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var hashes [][]byte
	for i := range 12 {
		_, hash := auth.NewRenewalSecret()
		hashes = append(hashes, hash)
		w := r.newInstance("w1")
		registration := berth.Registration{
			WorkerID: "w1", Instance: w.number, Region: "eu", Capacity: 1, SignalingURL: "ws://w1", ControlURL: "http://w1",
			Lease: lease, RenewalHash: hash,
		}
		for range 2 { // the first answer may have been lost
			if held, err := r.store.Register(t.Context(), registration); err != nil || held {
				t.Fatalf("instance %d: held %v, %v", i, held, err)
			}
		}
		r.vanish(w)
	}
	kept, err := r.store.RenewalSecrets(t.Context(), "w1")
	if err != nil || len(kept) != 8 {
		t.Fatalf("got %d secrets, %v", len(kept), err)
	}
	for _, secret := range kept {
		if !slices.ContainsFunc(hashes[4:], func(hash []byte) bool { return bytes.Equal(hash, secret.Hash) }) {
			t.Errorf("the secret of instance %d is none of the last eight", secret.Instance)
		}
	}
	if none, err := r.store.RenewalSecrets(t.Context(), "nobody"); err != nil || len(none) != 0 {
		t.Errorf("of an unknown worker: %v, %v", none, err)
	}
}
