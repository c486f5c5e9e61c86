package postgres_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

// What a worker computes and what the database computes must agree for any set of sessions.
func TestDigestIsTheDatabases(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 64)
	placed := r.place(start("a")).Session
	numbers := rapid.Int64Range(1000, 1<<62)
	rapid.Check(t, func(rt *rapid.T) {
		held := rapid.SliceOfNDistinct(rapid.Custom(func(rt *rapid.T) berth.Held {
			return berth.Held{Key: berth.SessionKey(numbers.Draw(rt, "key")), Generation: berth.Generation(numbers.Draw(rt, "generation"))}
		}), 0, 20, func(h berth.Held) berth.SessionKey { return h.Key }).Draw(rt, "held")
		tx, err := r.db.Pool.Begin(t.Context())
		r.ok(err)
		defer func() { r.ok(tx.Rollback(t.Context())) }()
		for _, h := range held {
			_, err := tx.Exec(t.Context(), `insert into berth.sessions (key, tenant_id, id, state, worker_id, instance, generation,
				handler, ttl_seconds, idle_timeout_seconds, created_at, placed_at, expires_at)
				select $1::bigint, tenant_id, 's' || $1::bigint, 'active', worker_id, instance, $2, handler, ttl_seconds,
				       idle_timeout_seconds, created_at, placed_at, expires_at from berth.sessions where key = $3`,
				int64(h.Key), int64(h.Generation), placed.Key)
			r.ok(err)
		}
		var sessions int
		var digest int64
		r.ok(tx.QueryRow(t.Context(), "select sessions, digest from berth.held_digest('w1', $1)", int32(placed.Instance)).
			Scan(&sessions, &digest))
		if sessions != len(held) || uint64(digest) != berth.Digest(held) {
			rt.Fatalf("the database says %d and %x, we %d and %x", sessions, uint64(digest), len(held), berth.Digest(held))
		}
	})
}
