package postgres_test

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// docQueries are the SQL blocks of docs/sql.md by the heading that they stand under, with psql's variables filled in.
func docQueries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer(":'tenant'", "'t1'", ":'session'", "'moved'", ":'worker'", "'w1'")
	queries := map[string][]string{}
	heading, block := "", []string(nil)
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "## "):
			heading, _, _ = strings.Cut(strings.TrimPrefix(line, "## "), ".")
		case line == "```sql\n":
			block = []string{}
		case line == "```\n" && block != nil:
			queries[heading] = append(queries[heading], fill.Replace(strings.Join(block, "")))
			block = nil
		case block != nil:
			block = append(block, line)
		}
	}
	return queries
}

// populate makes a database in which each of the ten questions has an answer.
func (r *rig) populate() {
	r.Helper()
	r.region("us", "eu")
	w1 := r.worker("w1", 3)
	r.quota("t1", 5)
	r.ok(r.store.SetTenant(r.Context(), berth.Tenant{ID: "t2", StartRate: 0.001, StartBurst: 1}))
	moved, ends := start("moved"), start("ends")
	ends.OnWorkerLoss = berth.LossEnd
	r.place(moved)
	r.place(ends)
	r.place(startOf("t2", "only"))
	r.placeRefused(berth.CodeStartRateLimited, startOf("t2", "early"))
	w2 := r.worker("w2", 4)
	r.lose(w1)
	r.place(moved)
	r.connect(r.session(r.place(start("b")).Session.Key), "c1")
	r.place(start("c"))
	r.place(start("d"))
	r.placeRefused(berth.CodeAtCapacity, start("e"))
	r.ok(r.store.AddRefusals(r.Context(), []berth.RefusalCount{{TenantID: "t1", Region: "eu", Code: berth.CodeAtCapacity, Refusals: 3}}))
	r.waiter("e", w2.number)
}

// waiter makes a start of t1 wait in eu for an API process that is present as the instance.
func (r *rig) waiter(id string, process berth.Instance) {
	r.Helper()
	r.exec(`insert into berth.waiters (process, tag, tenant_id, session_id, session_named, kind, peer_id, peer_named, role, spill,
			regions, handler, on_loss, ttl, idle, slots, connect_seconds, max_peers, deadline)
		values ($1, 1, 't1', $2, true, 'media', 'p', true, 'offer', true, '{eu}', 'echo', 'rejoin', 60, 60, 1, 30, 64,
			clock_timestamp() + interval '1 hour')`, int32(process), id)
}

// lose declares a worker lost, for the reasons that the reaper has, and takes its sessions off it.
func (r *rig) lose(w instance) {
	r.Helper()
	r.vanish(w)
	r.ok(r.store.OpenGap(r.Context(), 0, w.id, w.number, "presence_gone", 0))
	if lost, err := r.store.MarkLost(r.Context(), 0, w.id, w.number, "probe_refused"); err != nil || !lost {
		r.Fatalf("lost %v, %v", lost, err)
	}
	_, err := r.store.DisplaceLost(r.Context(), w.id, w.number, 100)
	r.ok(err)
}

func TestEachQuestionOfTheSQLPageIsAnsweredToTheViewer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.populate()
	r.ok(migrations.SetViewer(t.Context(), r.db.URL, "for-tests", testkit.Logger(t)))
	address, err := url.Parse(r.db.URL)
	r.ok(err)
	address.User = url.UserPassword(migrations.Viewer, "for-tests")
	conn, err := pgx.Connect(t.Context(), address.String())
	r.ok(err)
	defer func() { r.ok(conn.Close(t.Context())) }()
	holder, err := r.db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	r.ok(err)
	_, err = holder.Exec(t.Context(), "select from berth.slots") // somebody forgot this transaction
	r.ok(err)
	defer func() { r.ok(holder.Rollback(t.Context())) }()

	empty := map[string]bool{"10": true}
	questions := docQueries(t)
	if len(questions) != 10 {
		t.Errorf("%d questions have queries, want 10", len(questions))
	}
	for question, queries := range questions {
		for _, query := range queries {
			rows, err := conn.Query(t.Context(), query)
			r.ok(err)
			found, err := pgx.CollectRows(rows, pgx.RowToMap)
			if err != nil {
				t.Errorf("question %s: %v\n%s", question, err, query)
			}
			if (len(found) == 0) != empty[question] {
				t.Errorf("question %s: %d rows from\n%s", question, len(found), query)
			}
			for _, row := range found {
				if age, asked := row["open_for"]; asked && age == nil {
					t.Error("question 9: the viewer does not see how long others' transactions are open")
				}
			}
		}
	}
}

func TestSQLPageFindsTheSessionsLostWithAWorkerByIndex(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tx, err := r.db.Pool.Begin(t.Context())
	r.ok(err)
	defer func() { r.ok(tx.Rollback(context.WithoutCancel(t.Context()))) }()
	_, err = tx.Exec(t.Context(), "set local enable_seqscan = off")
	r.ok(err)
	rows, err := tx.Query(t.Context(), "explain "+docQueries(t)["8"][0])
	r.ok(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	r.ok(err)
	if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "Index Cond: ((data ->> 'worker_id'::text) = 'w1'::text)") {
		t.Errorf("not by session_events_displaced:\n%s", plan)
	}
}
