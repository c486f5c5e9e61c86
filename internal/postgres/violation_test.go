package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Each statement breaks one invariant behind the back of all functions.
func TestViewShowsEachViolation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 6)
	r.worker("w2", 4)
	heavy := start("heavy")
	heavy.Slots = 3
	r.connect(r.place(heavy).Session, "c1")
	r.place(start("light"))
	for name, broken := range map[string]struct {
		statement string
		invariant int
	}{
		"slot lost":                      {"update berth.slots set session = null, part = 0 where session is not null and part = 2", 1},
		"slot too many":                  {"update berth.slots set session = (select key from berth.sessions where id = 'heavy'), part = 3 where ctid = (select ctid from berth.slots where session is null limit 1)", 1},
		"parts with a hole":              {"update berth.slots set part = 7 where part = 2", 1},
		"part on another worker":         {"update berth.slots set worker_id = case worker_id when 'w1' then 'w2' else 'w1' end, ordinal = 99 where part = 2", 1},
		"slot of no session":             {"update berth.slots set session = 4711 where ctid = (select ctid from berth.slots where session is null limit 1)", 1},
		"slot of an ended session":       {"update berth.sessions set state = 'ended', worker_id = null, instance = null, connect_by = null, ended_at = now(), ended_reason = 'left' where id = 'light'", 1},
		"slot that is not there":         {"delete from berth.slots where ordinal = 4 and session is null", 1},
		"open slot of a cordoned worker": {"update berth.workers set cordoned_reason = 'x'", 4},
		"open slot above the capacity":   {"update berth.workers set capacity = capacity - 1 where id = 'w2'", 4},
		"hidden slot":                    {"update berth.slots set open = false where session is null", 5},
		"slot in a region of its own":    {"update berth.slots set region = 'mars' where session is null", 5},
		"slot with another capacity":     {"update berth.slots set capacity = 1 where session is null", 5},
		"owner that never registered":    {"update berth.sessions set instance = instance + 100 where id = 'light'", 2},
		"owner that is not known":        {"update berth.sessions set worker_id = 'w9' where id = 'light'", 2},
		"generation ahead":               {"update berth.sessions set generation = 4711 where id = 'light'", 2},
		"generation twice":               {"update berth.sessions set generation = 1", 2},
		"peer without an owner":          {"update berth.peers set connection_id = 'c', connected_at = now()", 2},
		"lanes that say more":            {"update berth.tenant_lanes set live_sessions = live_sessions + 1 where lane = 3", 3},
		"lane missing":                   {"delete from berth.tenant_lanes where lane = 7", 3},
		"tokens below nothing":           {"insert into berth.start_buckets values ('t1', -1, now())", 3},
		"placed after the drain":         {"update berth.workers set state = 'draining', drain_started_at = now() - interval '1 hour', drain_deadline = now()", 4},
		"no-show that stays":             {"update berth.sessions set connect_by = now() - interval '11 s' where id = 'light'", 6},
		"expired session that stays":     {"update berth.sessions set expires_at = now() - interval '11 s'", 6},
	} {
		seen := false
		found := r.violationsAfter(broken.statement)
		for _, v := range found {
			seen = seen || v.Invariant == broken.invariant && v.What != "" && v.Subject != ""
		}
		if !seen {
			t.Errorf("%s: invariant %d is not among %+v", name, broken.invariant, found)
		}
	}
}

// violationsAfter reads the view after a statement, and takes that back.
func (r *rig) violationsAfter(statement string) []violation {
	r.Helper()
	tx, err := r.db.Pool.Begin(r.Context())
	r.ok(err)
	defer func() { r.ok(tx.Rollback(context.WithoutCancel(r.Context()))) }()
	if tag, err := tx.Exec(r.Context(), statement); err != nil || tag.RowsAffected() == 0 {
		r.Fatalf("%s: %v, %v", statement, tag, err)
	}
	rows, err := tx.Query(r.Context(), "select invariant, what, subject from berth.violations")
	r.ok(err)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[violation])
	r.ok(err)
	return found
}
