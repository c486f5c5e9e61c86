package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

// contents digests every row of every table, so that whatever a rehearsal left would show.
const contents = `
select string_agg(table_name || ': ' || (xpath('/row/d/text()', query_to_xml(format(
           'select coalesce(md5(string_agg(t::text, chr(10) order by t::text)), %L) as d from berth.%I t', '-', table_name),
           false, true, '')))[1]::text, chr(10) order by table_name)
  from information_schema.tables where table_schema = 'berth' and table_type = 'BASE TABLE'`

const prepared = `
select coalesce(string_agg(statement, chr(10)), '') from pg_prepared_statements`

func TestRehearsalPreparesWhatIsUrgentAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 4)
	r.place(start("a"))
	before := read[string](r, contents)
	single := openStore(t, r.db, postgres.Config{PoolSize: 1})
	if could, err := postgres.RehearseNow(t.Context(), single); err != nil || !could {
		t.Fatalf("got %v, %v", could, err)
	}
	if after := read[string](r, contents); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
	var statements string
	r.ok(single.Pool().QueryRow(t.Context(), prepared).Scan(&statements))
	for _, hot := range []string{"claim_sessions", "rejoin_verdict", "release_sessions", "session_rows where key = $1", "api_keys"} {
		if !strings.Contains(statements, hot) {
			t.Errorf("%s was not run", hot)
		}
	}
}

func TestRehearsalIsNotInTheWayOfThoseThatWait(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	l.worker("w1", 1)
	l.place(start("a"))
	l.join(start("b"), 30*time.Second)
	before := read[string](l.rig, contents)
	could, err := postgres.RehearseNow(t.Context(), openStore(t, l.db, postgres.Config{}))
	if err != nil || could {
		t.Errorf("got %v, %v", could, err)
	}
	if after := read[string](l.rig, contents); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
	_, err = l.store.EndSession(t.Context(), "t1", "a")
	l.ok(err)
	if b := <-l.answers; b.err != nil {
		t.Error(b.err)
	}
}

func TestHalfOfThePoolRehearses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker("w1", 4)
	r.place(start("a"))
	store := openStore(t, r.db, postgres.Config{PoolSize: 4, RehearseAfter: time.Millisecond})
	testkit.EventuallyTrue(t, 10*time.Second, "all have rehearsed", func() bool {
		return store.Pool().Stat().TotalConns() >= 2 && postgres.Unrehearsed(store) == 0
	})
	if n := store.Pool().Stat().TotalConns(); n != 2 {
		t.Errorf("%d connections, want half of 4", n)
	}
}
