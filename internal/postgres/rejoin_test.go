package postgres_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func (r *rig) rejoin(s berth.Session, lost bool) (berth.RejoinAnswer, error) {
	return r.store.Rejoin(r.Context(), berth.Rejoin{Key: s.Key, PeerID: "p1", Generation: s.Generation, Lost: lost})
}

// rejoins expects an outcome.
func (r *rig) rejoins(s berth.Session, lost bool, want berth.RejoinOutcome) berth.RejoinAnswer {
	r.Helper()
	answer, err := r.rejoin(s, lost)
	if err != nil || answer.Outcome != want {
		r.Fatalf("got %+v, %v; want %s", answer, err, want)
	}
	return answer
}

// late makes a worker's lease run out.
func (r *rig) late(id string) {
	r.Helper()
	r.exec("update berth.worker_leases set expires_at = clock_timestamp() - interval '1 second' where worker_id = $1", id)
}

func TestRejoinOfAHealthyOwnerChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	r.worker("w2", 2)
	placed := r.place(start("a")).Session
	answer := r.rejoins(placed, true, berth.RejoinCurrent)
	if got := answer.Placement; got.Session.Generation != placed.Generation || got.Peer.ID != "p1" || got.Created {
		t.Errorf("got %+v", got)
	}
	r.late(placed.WorkerID)
	r.rejoins(placed, false, berth.RejoinCurrent) // late, but this peer did not lose it
}

func TestRejoinIsHeldWhileTheOwnerIsInQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	r.worker("w2", 2)
	placed := r.place(start("a")).Session
	if placed.WorkerID != "w1" {
		w = instance{id: "w2", number: placed.Instance}
	}
	tick, err := r.store.BeginTick(t.Context(), lease, lease)
	r.ok(err)
	r.ok(r.store.OpenGap(t.Context(), tick.Number, w.id, w.number, "test", 0))
	r.rejoins(placed, true, berth.RejoinHold)
	r.ok(r.store.ClearGap(t.Context(), tick.Number, w.id, w.number))
	r.rejoins(placed, true, berth.RejoinCurrent)
	r.terminate(w)
	r.rejoins(placed, false, berth.RejoinHold) // its presence is gone
	r.expect(placed.Key, berth.SessionAssigned, "")
}

func TestRejoinOfALostSessionPlacesItElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	placed := r.displaced(w, start("a"))
	r.worker("w2", 1)
	answer := r.rejoins(placed, false, berth.RejoinPlaced)
	if got := answer.Placement.Session; got.WorkerID != "w2" || got.Generation <= placed.Generation ||
		got.State != berth.SessionAssigned || got.LastWorkerID != "w1" || got.ConnectBy.IsZero() {
		t.Errorf("got %+v", got)
	}
	r.rejoins(placed, true, berth.RejoinCurrent) // another peer of the old placement
}

func TestRejoinGoesBackToTheLastWorkerOnlyIfNoOtherFits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 8)
	placed := r.displaced(w, start("a"))
	_, err := r.store.DrainWorker(t.Context(), "w1", time.Minute, false)
	r.ok(err)
	r.worker("w2", 1)
	r.place(start("fills-w2"))
	_, err = r.store.UndrainWorker(t.Context(), "w1")
	r.ok(err)
	if got := r.rejoins(placed, false, berth.RejoinPlaced).Placement.Session; got.WorkerID != "w1" {
		t.Errorf("got %+v", got)
	}
}

func TestTenParallelRejoinsAreOneMove(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*rig, instance, berth.Session){
		"of a session that awaits one": func(r *rig, w instance, s berth.Session) {
			r.ok(r.store.Displace(r.Context(), w.id, w.number, []berth.SessionKey{s.Key}))
		},
		"of a late owner": func(r *rig, _ instance, s berth.Session) { r.late(s.WorkerID) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.worker("w1", 4) // the only one: a second move would take it off again
			placed := r.place(start("a")).Session
			prepare(r, w, placed)
			stores := r.stores(3)
			var mu sync.Mutex
			outcomes, generations := map[berth.RejoinOutcome]int{}, map[berth.Generation]int{}
			r.ok(errors.Join(parallel(10, func(i int) error {
				answer, err := stores[i%3].Rejoin(t.Context(),
					berth.Rejoin{Key: placed.Key, PeerID: "p1", Generation: placed.Generation, Lost: true})
				mu.Lock()
				defer mu.Unlock()
				outcomes[answer.Outcome]++
				generations[answer.Placement.Session.Generation]++
				return err
			})...))
			moves := read[int](r, "select count(*)::int from berth.session_events where session = $1 and type = 'replaced'", placed.Key)
			if moves != 1 || len(generations) != 1 || outcomes[berth.RejoinHold] > 0 {
				t.Errorf("%d moves, outcomes %v, generations %v", moves, outcomes, generations)
			}
		})
	}
}

func TestPeerThatLostALateOwnerMovesThisSessionOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 4)
	a, b := r.place(start("a")).Session, r.place(start("b")).Session
	r.worker("w2", 4)
	r.late("w1")
	if got := r.rejoins(a, true, berth.RejoinPlaced).Placement.Session; got.WorkerID != "w2" {
		t.Errorf("got %+v", got)
	}
	r.expect(b.Key, berth.SessionAssigned, "")
	if got := r.session(b.Key); got.WorkerID != "w1" || got.Generation != b.Generation {
		t.Errorf("the other session: %+v", got)
	}
}

func TestRejoinRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 1)
	placed := r.place(start("a")).Session
	_, err := r.store.Rejoin(t.Context(), berth.Rejoin{Key: placed.Key, PeerID: "p1", Generation: placed.Generation + 1})
	r.refused(berth.CodeInvalidArgument, err)
	_, err = r.store.Rejoin(t.Context(), berth.Rejoin{Key: placed.Key + 1000, PeerID: "p1", Generation: 1})
	r.refused(berth.CodeNotFound, err)
	r.ok(r.store.Displace(t.Context(), w.id, w.number, []berth.SessionKey{placed.Key}))
	r.place(start("takes-the-slot"))
	_, err = r.rejoin(placed, true)
	r.refused(berth.CodeAtCapacity, err)
	_, err = r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	_, err = r.rejoin(placed, true)
	r.refused(berth.CodeSessionEnded, err)
}

// A rejoin token is bound to a row. The id may be another session's by now.
func TestRejoinOfAnEndedSessionNeitherRevivesItNorEntersItsSuccessor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 4)
	old := r.place(start("a")).Session
	_, err := r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	r.place(start("a"))
	_, err = r.rejoin(old, true)
	r.refused(berth.CodeSessionEnded, err)
}

func TestEndsThatRaceRejoinsAndNewPeersMakeNoOtherSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 8)
	for _, id := range ids("s", 15) {
		lost := r.displaced(w, start(id))
		r.ok(errors.Join(parallel(4, func(i int) error {
			var err error
			switch i {
			case 0:
				_, err = r.store.EndSession(t.Context(), "t1", id)
			case 1:
				_, err = r.rejoin(lost, true)
			case 2:
				_, err = r.store.AddPeer(t.Context(), "t1", id, berth.Peer{ID: "p2", Role: "viewer"})
			default:
				_, err = r.store.ReplaceLost(t.Context(), 10)
			}
			if berth.RefusalCode(err) == berth.CodeSessionEnded {
				return nil
			}
			return err
		})...))
		r.expect(lost.Key, berth.SessionEnded, berth.EndedDeleted)
	}
	if rows := read[int](r, "select count(*)::int from berth.sessions"); rows != 15 || r.live("t1") != 0 {
		t.Errorf("%d rows, %d live", rows, r.live("t1"))
	}
}
