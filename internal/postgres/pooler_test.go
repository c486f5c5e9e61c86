package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// Behind a pooler in transaction mode nothing is prepared: the driver names parameter types by Go's, so each call has
// to be tried.
func TestEveryCallWorksWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store = openStore(t, r.db, postgres.Config{URL: r.db.URL, DirectURL: r.db.SocketURL})
	ctx := t.Context()
	var err error
	step := func(name string, stepErr error) {
		t.Helper()
		if stepErr != nil {
			t.Errorf("%s: %v", name, stepErr)
		}
	}

	step("Ping", r.store.Ping(ctx))
	r.quota("t2", 3)
	r.region("us", "eu")
	_, err = r.store.Tenants(ctx)
	step("Tenants", err)
	_, err = r.store.Tenant(ctx, "t1")
	step("Tenant", err)
	_, err = r.store.Regions(ctx)
	step("Regions", err)

	w := r.worker("w1", 4)
	s := start("a")
	s.Region, s.Metadata = "us", []byte(`{"a":"ü"}`)
	placed := r.place(s).Session
	if string(placed.Metadata) != `{"a":"ü"}` {
		t.Errorf("metadata %s", placed.Metadata)
	}
	r.placeRefused(berth.CodeNotFound, startOf("nobody", "b"))
	r.connect(placed, "c1")
	_, err = r.store.AddPeer(ctx, "t1", "a", berth.Peer{ID: "p2", Role: "viewer"})
	step("AddPeer", err)
	step("DisconnectPeer", r.store.DisconnectPeer(ctx, berth.Disconnect{Held: heldOf(placed), PeerID: "p1", ConnectionID: "c1"}))
	_, _, err = r.store.Session(ctx, "t1", "a")
	step("Session", err)
	_, err = r.store.ListSessions(ctx, berth.SessionFilter{TenantID: "t1", State: berth.SessionActive, WorkerID: "w1", Before: 1 << 40, Limit: 5})
	step("ListSessions", err)
	_, err = r.store.Renew(ctx, berth.Renewal{WorkerID: "w1", Instance: w.number, Count: 1, Digest: 1 << 63, Lease: lease})
	step("Renew", err)
	_, err = r.store.Reconcile(ctx, "w1", w.number, []berth.Held{heldOf(placed)})
	step("Reconcile", err)
	_, err = r.store.Workers(ctx)
	step("Workers", err)
	_, err = r.store.DrainWorker(ctx, "w1", 90*time.Second, true)
	step("DrainWorker", err)
	step("Drain", r.store.Drain(ctx, "w1", w.number, time.Minute))
	_, err = r.store.OverdueDrains(ctx, time.Second)
	step("OverdueDrains", err)
	_, err = r.store.UndrainWorker(ctx, "w1")
	step("UndrainWorker", err)
	step("Displace", r.store.Displace(ctx, "w1", w.number, []berth.SessionKey{placed.Key}))
	answer := r.rejoins(placed, true, berth.RejoinPlaced)
	step("EndSessions", r.store.EndSessions(ctx, []berth.End{{Held: heldOf(answer.Placement.Session), Reason: berth.EndedLeft}}))
	r.displaced(w, startThat("b", berth.LossReplace))
	_, err = r.store.ReplaceLost(ctx, 10)
	step("ReplaceLost", err)
	_, err = r.store.EndSession(ctx, "t1", "b")
	step("EndSession", err)
	_, err = r.store.EndOverdue(ctx, 10)
	step("EndOverdue", err)
	_, err = r.store.PurgeSessions(ctx, time.Hour, 10)
	step("PurgeSessions", err)
	step("AddRefusals", r.store.AddRefusals(ctx, []berth.RefusalCount{{TenantID: "t1", Code: berth.CodeAtCapacity, Refusals: 2}}))
	step("PurgeHistory", r.store.PurgeHistory(ctx, time.Hour))
	step("VacuumSlots", r.store.VacuumSlots(ctx, -1))

	step("CreateKey", r.store.CreateKey(ctx, keyOf("k1", "t1")))
	_, err = r.store.KeyByID(ctx, "k1")
	step("KeyByID", err)
	_, err = r.store.Keys(ctx, "t1")
	step("Keys", err)
	step("RevokeKey", r.store.RevokeKey(ctx, "k1"))
	step("RotateKeys", r.store.RotateKeys(ctx))
	_, err = r.store.RejoinSecrets(ctx)
	step("RejoinSecrets", err)
	var keys []auth.SigningKey
	keys, err = r.store.SigningKeys(ctx)
	step("SigningKeys", err)
	if len(keys) != 1 {
		t.Errorf("%d signing keys", len(keys))
	}

	_, err = r.store.WithReaperLock(ctx, func(ctx context.Context) error {
		tick, err := r.store.BeginTick(ctx, blindAfter, lease)
		step("BeginTick", err)
		_, err = r.store.Look(ctx, berth.Look{Tick: tick.Number, Presence: true})
		step("Look", err)
		step("OpenGap", r.store.OpenGap(ctx, tick.Number, "w1", w.number, "test", time.Second))
		step("ClearGap", r.store.ClearGap(ctx, tick.Number, "w1", w.number))
		_, err = r.store.CordonLate(ctx, tick.Number, "w1", w.number)
		step("CordonLate", err)
		_, err = r.store.MarkLost(ctx, tick.Number, "w1", w.number, "test")
		step("MarkLost", err)
		_, err = r.store.DisplaceLost(ctx, "w1", w.number, 10)
		step("DisplaceLost", err)
		_, err = r.store.DisplaceDrained(ctx, "w1", w.number, 10)
		step("DisplaceDrained", err)
		_, err = r.store.OwnedBy(ctx, "w1", w.number, 10)
		step("OwnedBy", err)
		_, err = r.store.WalkSessions(ctx)
		step("WalkSessions", err)
		step("Distrust", r.store.Distrust(ctx))
		_, err = r.store.Unfinished(ctx)
		step("Unfinished", err)
		return nil
	})
	step("WithReaperLock", err)
	step("Leave", r.store.Leave(ctx, "w1", w.number))
}
