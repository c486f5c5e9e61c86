package migrations_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
)

// catalogQuery describes schema berth, one line per thing, in an order that does not depend on its history.
const catalogQuery = `
with own as (select c.* from pg_class c where c.relnamespace = 'berth'::regnamespace)
select line from (
    select format('relation %s %s %s %s', relkind, relname, reloptions, obj_description(oid, 'pg_class')) as line
      from own where relkind in ('r', 'v', 'p', 'm')
    union all
    select format('column %s.%s %s null=%s default=%s identity=%s generated=%s', c.relname, a.attname,
                  format_type(a.atttypid, a.atttypmod), not a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
                  a.attidentity, a.attgenerated)
      from own c
      join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
     where c.relkind in ('r', 'v', 'p', 'm')
    union all
    select format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
      from pg_constraint where connamespace = 'berth'::regnamespace
    union all
    select 'index ' || indexdef from pg_indexes where schemaname = 'berth'
    union all
    select 'function ' || pg_get_functiondef(oid) from pg_proc where pronamespace = 'berth'::regnamespace
    union all
    select format('view %s %s', viewname, definition) from pg_views where schemaname = 'berth'
    union all
    select format('sequence %s %s %s %s', sequencename, data_type, increment_by, cache_size)
      from pg_sequences where schemaname = 'berth'
    union all
    select format('row of reaper_state: %s', count(*)) from own where relname = 'reaper_state'
) catalog order by line collate "C"`

func catalog(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return lines(t, pool, catalogQuery)
}

// contents is a digest of the rows of each table, by name.
func contents(t *testing.T, pool *pgxpool.Pool) map[string]string {
	t.Helper()
	digests := map[string]string{}
	tables := lines(t, pool, `select relname::text from pg_class
		where relnamespace = 'berth'::regnamespace and relkind = 'r' and relname <> 'schema_version'`)
	for _, table := range tables {
		digests[table] = lines(t, pool, `select count(*) || ' ' || coalesce(md5(string_agg(r::text, e'\n' order by r::text)), '')
			from berth.`+table+` r`)[0]
	}
	return digests
}

func TestEveryStepGoesDownAndUpAgain(t *testing.T) {
	t.Parallel()
	db := databases.EmptyDatabase(t)
	last := newest(t, db.URL)
	before := catalog(t, db.Pool)
	for version := int64(1); version <= last; version++ {
		upTo(t, db.URL, version)
		after := catalog(t, db.Pool)
		if slices.Equal(before, after) {
			t.Errorf("migration %d changed nothing that the catalog shows", version)
		}
		down(t, db.URL)
		if diff := cmp.Diff(before, catalog(t, db.Pool)); diff != "" {
			t.Errorf("down from %d is not what was before (-before +after):\n%s", version, diff)
		}
		upTo(t, db.URL, version)
		if diff := cmp.Diff(after, catalog(t, db.Pool)); diff != "" {
			t.Errorf("up to %d again is not what it was (-first +again):\n%s", version, diff)
		}
		before = after
	}
}

func TestStepwiseIsTheSameAsAtOnce(t *testing.T) {
	t.Parallel()
	atOnce, stepwise := databases.Database(t), databases.EmptyDatabase(t)
	for version := int64(1); version <= newest(t, atOnce.URL); version++ {
		upTo(t, stepwise.URL, version)
	}
	if diff := cmp.Diff(catalog(t, atOnce.Pool), catalog(t, stepwise.Pool)); diff != "" {
		t.Error(diff)
	}
}

// fill places sessions, ends one and leaves one awaiting a rejoin, through the functions themselves.
func fill(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `insert into berth.regions (id, spill) values ('eu', '{us}'), ('us', '{}')`)
	exec(t, pool, `insert into berth.tenants (id, default_region, max_concurrent_sessions) values ('t1', 'eu', 10)`)
	exec(t, pool, `insert into berth.api_keys (id, role, tenant_id, prefix, hash)
		values ('k1', 'tenant', 't1', 'berth_tenant_k1', sha256('k1'))`)
	exec(t, pool, `select berth.register_worker('w1', 1, 'eu', 4, 'ws://w1', 'http://w1', 'v1', 6,
		'{}', sha256('secret'))`)
	exec(t, pool, `select berth.open_worker('w1', 1)`)
	exec(t, pool, `select berth.claim_sessions(array['t1','t1','t1'], array['a','b','c'], array[true,true,true], array[1,2,3],
		array[null,null,null]::bigint[], array['media','media','media'], array['p','p','p'], array[true,true,true],
		array['offer','offer','offer'], array[null,null,null]::text[], array[true,true,true], array['echo','echo','echo'],
		array['rejoin','rejoin','rejoin'], array[3600,3600,3600], array[60,60,60], array['{"a":1}',null,null], array[1,1,2],
		array[null,null,null]::text[], array[null,null,null]::jsonb[], array['k1',null,null],
		array[sha256('x'),null,null]::bytea[], array[0,0,0]::float8[], null, 30, 60, 64, null, 0)`)
	exec(t, pool, `select berth.release_sessions((select array_agg(key) from berth.sessions where id = 'a'), array[null]::bigint[],
		array['deleted'], array[false])`)
	exec(t, pool, `select berth.displace_sessions('w1', 2, (select array_agg(key) from berth.sessions where id = 'b'), null,
		'test', 'drained', 60, 1)`)
	exec(t, pool, `select berth.open_gap(0, 'w1', 1, 'test')`)
	exec(t, pool, `insert into berth.refusal_counts values (date_trunc('minute', now()), 't1', '', 'at_capacity', 3)`)
}

func TestDataSurvivesWhatHoldsNoData(t *testing.T) {
	t.Parallel()
	const tables = 22 // the last migration that makes tables or columns
	db := databases.Database(t)
	last := newest(t, db.URL)
	fill(t, db.Pool)
	want := contents(t, db.Pool)
	for _, table := range []string{"sessions", "slots", "peers", "session_events", "gaps", "worker_leases", "renewal_secrets"} {
		if want[table] == "0 " {
			t.Errorf("%s is empty, so the test shows nothing about it", table)
		}
	}
	for range last - tables {
		down(t, db.URL)
		if diff := cmp.Diff(want, contents(t, db.Pool)); diff != "" {
			t.Error(diff)
		}
	}
	upTo(t, db.URL, last)
	if diff := cmp.Diff(want, contents(t, db.Pool)); diff != "" {
		t.Error(diff)
	}
	if left := lines(t, db.Pool, "select what from berth.violations"); len(left) > 0 {
		t.Errorf("violations: %v", left)
	}
}

func TestDownToNothingWithDataAndUpAgain(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	whole := catalog(t, db.Pool)
	fill(t, db.Pool)
	for range newest(t, db.URL) {
		down(t, db.URL)
	}
	if left := lines(t, db.Pool, `select relname::text from pg_class
		where relnamespace = 'berth'::regnamespace and relkind in ('r', 'v') and relname <> 'schema_version'`); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	down(t, db.URL) // River's
	if left := lines(t, db.Pool, `select relname::text from pg_class where relnamespace = 'river'::regnamespace`); len(left) > 0 {
		t.Errorf("left behind in river: %v", left)
	}
	up(t, db.URL)
	if diff := cmp.Diff(whole, catalog(t, db.Pool)); diff != "" {
		t.Error(diff)
	}
}
