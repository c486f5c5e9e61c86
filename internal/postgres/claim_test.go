package postgres_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

func TestPlacementAnswersWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker("w1", 2)
	s := start("a")
	s.Region, s.Metadata = "eu", json.RawMessage(`{"a": 1, "huge": 1e131072}`)
	s.OnWorkerLoss, s.TTL, s.IdleTimeout = berth.LossReplace, 10*time.Second, 5*time.Second
	placed := r.place(s)
	got := placed.Session
	if !placed.Created || got.State != berth.SessionAssigned || got.WorkerID != "w1" || got.Instance != w.number ||
		got.SignalingURL != "ws://w1" || got.Region != "eu" || got.RequestedRegion != "eu" || got.Spilled() ||
		got.OnWorkerLoss != berth.LossReplace || got.TTL != s.TTL || got.IdleTimeout != s.IdleTimeout ||
		string(got.Metadata) != string(s.Metadata) || got.Generation == 0 || got.Handler != "echo" {
		t.Errorf("got %+v", placed)
	}
	if got.ExpiresAt.Sub(got.CreatedAt) != s.TTL || got.ConnectBy.Sub(got.CreatedAt) != berth.ConnectWindow {
		t.Errorf("deadlines %v and %v after %v", got.ConnectBy, got.ExpiresAt, got.CreatedAt)
	}
	if placed.At.Before(got.CreatedAt) || placed.Peer.ID != "p1" || placed.Peer.Role != berth.RoleOffer {
		t.Errorf("got %+v", placed)
	}
}

func TestLiveIDIsAnsweredWithItsStoredPlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 2)
	first := r.place(start("a"))
	other := start("a")
	other.Region, other.TTL, other.Peer = "nowhere", time.Minute, berth.Peer{ID: "p2", Role: "viewer"}
	again := r.place(other)
	if again.Created || again.Session.Generation != first.Session.Generation || again.Session.TTL != time.Hour ||
		again.Peer.ID != "p2" || again.Peer.Role != "viewer" {
		t.Errorf("got %+v, first %+v", again, first)
	}
	if used := read[int](r, "select count(*)::int from berth.slots where session is not null"); used != 1 {
		t.Errorf("%d slots", used)
	}
	unnamed := start("a")
	unnamed.Peer = berth.Peer{}
	if got := r.place(unnamed); got.Peer.ID != "p1" {
		t.Errorf("a start without a peer got %q, want the first one", got.Peer.ID)
	}
}

func TestSameIDOfTwoTenantsIsTwoSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.tenant("t2")
	r.worker("w1", 2)
	a, b := r.place(start("a")), r.place(startOf("t2", "a"))
	if a.Session.Key == b.Session.Key || !b.Created {
		t.Errorf("got %+v and %+v", a.Session, b.Session)
	}
}

func TestOneIDInOneBatchIsOneSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.quota("t1", 2)
	r.worker("w1", 8)
	second := start("a")
	second.Peer.ID = "p2"
	results, err := r.store.ClaimSessions(t.Context(), []berth.Start{start("a"), second, start("b"), start("a")})
	r.ok(err)
	created := 0
	for i, result := range results {
		r.ok(result.Err)
		if result.Placement.Created {
			created++
		}
		if want := []string{"p1", "p2", "p1", "p1"}[i]; result.Placement.Peer.ID != want {
			t.Errorf("answer %d is for peer %s, want %s", i+1, result.Placement.Peer.ID, want)
		}
	}
	if created != 2 || r.live("t1") != 2 {
		t.Errorf("%d created, %d live", created, r.live("t1"))
	}
}

func TestRefusedStartDoesNotDecideForOthersOfItsID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 8)
	lost := start("a")
	lost.Region = "nowhere"
	results, err := r.store.ClaimSessions(t.Context(), []berth.Start{lost, start("a")})
	r.ok(err)
	r.refused(berth.CodeInvalidArgument, results[0].Err)
	if !results[1].Contended {
		t.Errorf("got %+v, want to be asked again", results[1])
	}
}

func TestQuotaIsChargedForPlacementsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("full")
	r.quota("t1", 1)
	r.worker("w1", 2)
	nowhere, somewhere, beyond := start("a"), start("b"), start("c")
	nowhere.Region, nowhere.Spill = "full", false
	somewhere.Region, beyond.Region = "eu", "eu"
	results, err := r.store.ClaimSessions(t.Context(), []berth.Start{nowhere, somewhere, beyond})
	r.ok(err)
	r.refused(berth.CodeAtCapacity, results[0].Err)
	r.ok(results[1].Err) // the start before took no slot, so the quota has room
	r.refused(berth.CodeConcurrentSessions, results[2].Err)
}

func TestLackOfSlotsIsNotBlamedOnTheQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.quota("t1", 2)
	r.worker("w1", 1)
	results, err := r.store.ClaimSessions(t.Context(), []berth.Start{start("a"), start("b"), start("c")})
	r.ok(err)
	r.ok(results[0].Err)
	r.refused(berth.CodeAtCapacity, results[1].Err)
	r.refused(berth.CodeAtCapacity, results[2].Err)
}

func TestQuotaCountsGhostsAndSaysWhenTheyGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.quota("t1", 2)
	w := r.worker("w1", 4)
	r.connect(r.place(start("a")).Session, "c1")
	r.displaced(w, start("b"))
	refusal := r.placeRefused(berth.CodeConcurrentSessions, start("c"))
	if !refusal.Retryable || refusal.RetryAfter < 50*time.Second || refusal.RetryAfter > time.Minute {
		t.Errorf("got %+v, want the rejoin window", refusal)
	}
	again := r.place(start("b")) // the ghost itself may come back
	r.connect(again.Session, "c2")
	refusal = r.placeRefused(berth.CodeConcurrentSessions, start("c"))
	if refusal.Retryable || refusal.RetryAfter != 0 {
		t.Errorf("no ghosts, but got %+v", refusal)
	}
	r.quota("t1", 0)
	r.place(start("b")) // sessions above a lowered quota stay
	r.placeRefused(berth.CodeConcurrentSessions, start("c"))
}

func TestStartSpillsInOrderOnlyWhenItMay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("us")
	r.region("asia")
	r.region("eu", "us", "asia")
	r.workerIn("eu", "w-eu", 1)
	r.workerIn("us", "w-us", 1)
	r.workerIn("asia", "w-asia", 2)
	in := func(id string, spill bool) berth.Start {
		s := start(id)
		s.Region, s.Spill = "eu", spill
		return s
	}
	for i, want := range []string{"eu", "us", "asia"} {
		got := r.place(in(ids("s", 3)[i], true)).Session
		if got.Region != want || got.Spilled() != (want != "eu") || got.RequestedRegion != "eu" {
			t.Errorf("start %d: got %+v, want %s", i, got, want)
		}
	}
	r.placeRefused(berth.CodeAtCapacity, in("stays", false))
	if got := r.place(start("anywhere")).Session; got.Region != "asia" || got.RequestedRegion != "" || got.Spilled() {
		t.Errorf("got %+v", got)
	}
	r.placeRefused(berth.CodeAtCapacity, in("full", true))
}

func TestConfiguredButEmptyRegionSpills(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.region("empty", "eu")
	r.worker("w1", 1)
	s := start("a")
	s.Region, s.Spill = "empty", false
	r.placeRefused(berth.CodeAtCapacity, s)
	s.Spill = true
	if got := r.place(s).Session; got.Region != "eu" || !got.Spilled() {
		t.Errorf("got %+v", got)
	}
}

func TestRegionThatIsNotNamedIsTheTenantsThenTheProcesssThenAny(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, region := range []string{"us", "asia"} {
		r.region(region)
		r.workerIn(region, "w-"+region, 2)
	}
	r.ok(r.store.SetTenant(t.Context(), berth.Tenant{ID: "of-us", DefaultRegion: "us"}))
	inAsia := openStore(t, r.db, postgres.Config{DefaultRegion: "asia"})
	got, err := inAsia.Place(t.Context(), startOf("of-us", "a"))
	r.ok(err)
	if got.Session.Region != "us" {
		t.Errorf("the tenant's default lost to %s", got.Session.Region)
	}
	got, err = inAsia.Place(t.Context(), start("b"))
	r.ok(err)
	if got.Session.Region != "asia" || got.Session.RequestedRegion != "asia" {
		t.Errorf("got %+v", got.Session)
	}
	unheardOf := openStore(t, r.db, postgres.Config{DefaultRegion: "unheard-of"})
	got, err = unheardOf.Place(t.Context(), start("c"))
	r.ok(err)
	if got.Session.RequestedRegion != "" {
		t.Errorf("a region without workers was asked for: %+v", got.Session)
	}
}

func TestUnknownRegionAndTenantAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	s := start("a")
	s.Region = "mars"
	refusal := r.placeRefused(berth.CodeInvalidArgument, s)
	if len(refusal.Fields) != 1 || refusal.Fields[0].Field != "region" {
		t.Errorf("got %+v", refusal)
	}
	r.placeRefused(berth.CodeNotFound, startOf("nobody", "a"))
	if free := r.free(); free != 1 {
		t.Errorf("%d free", free)
	}
}

func TestEndedIDIsANewSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 1)
	first := r.place(start("a"))
	_, err := r.store.EndSession(t.Context(), "t1", "a")
	r.ok(err)
	second := r.place(start("a"))
	if !second.Created || second.Session.Key == first.Session.Key || second.Session.Generation <= first.Session.Generation {
		t.Errorf("first %+v, second %+v", first.Session, second.Session)
	}
}

func TestEmptyBatchAnswersNothing(t *testing.T) {
	t.Parallel()
	results, err := newRig(t).store.ClaimSessions(t.Context(), nil)
	if err != nil || len(results) != 0 {
		t.Errorf("got %v, %v", results, err)
	}
}
