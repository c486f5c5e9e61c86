package migrations_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

func up(t *testing.T, url string) {
	t.Helper()
	if err := migrations.Up(t.Context(), url, testkit.Logger(t)); err != nil {
		t.Fatalf("up: %v", err)
	}
}

// upAtOnce migrates from several processes' worth of connections at the same time.
func upAtOnce(t *testing.T, url string) {
	t.Helper()
	const processes = 5
	logger := testkit.Logger(t)
	var group errgroup.Group
	for range processes {
		group.Go(func() error { return migrations.Up(t.Context(), url, logger) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func TestScenario_O11_FiveProcessesMigrateAnEmptyDatabaseAtOnce(t *testing.T) {
	t.Parallel()
	want := catalog(t, databases.Database(t).Pool)
	for range 4 {
		db := databases.EmptyDatabase(t)
		upAtOnce(t, db.URL)
		if diff := cmp.Diff(want, catalog(t, db.Pool)); diff != "" {
			t.Error(diff)
		}
		twice := lines(t, db.Pool, "select version_id::text from berth.schema_version group by 1 having count(*) > 1")
		if len(twice) > 0 {
			t.Errorf("applied more than once: %v", twice)
		}
	}
}

func TestScenario_O11_FiveProcessesMigrateTheVersionBeforeAtOnce(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	want := catalog(t, db.Pool)
	down(t, db.URL)
	upAtOnce(t, db.URL)
	if diff := cmp.Diff(want, catalog(t, db.Pool)); diff != "" {
		t.Error(diff)
	}
}

func TestRiverIsMigratedBeside(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	for _, table := range []string{"river_job", "river_leader", "river_queue"} {
		if n := lines(t, db.Pool, "select to_regclass($1)::text", "river."+table); n[0] != "river."+table {
			t.Errorf("no table river.%s", table)
		}
	}
	if n := lines(t, db.Pool, "select relname::text from pg_class where relnamespace = 'public'::regnamespace"); len(n) > 0 {
		t.Errorf("in schema public: %v", n)
	}
}

func TestScenario_O13_NewerSchemaIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	exec(t, db.Pool, "insert into berth.schema_version (version_id, is_applied) values (9999, true)")
	before := catalog(t, db.Pool)
	logger := testkit.Logger(t)
	for name, act := range map[string]func() error{
		"Up":    func() error { return migrations.Up(t.Context(), db.URL, logger) },
		"UpTo":  func() error { return migrations.UpTo(t.Context(), db.URL, 1, logger) },
		"Down":  func() error { return migrations.Down(t.Context(), db.URL, logger) },
		"Check": func() error { return migrations.Check(t.Context(), db.URL) },
	} {
		if err := act(); !errors.Is(err, migrations.ErrNewerSchema) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if diff := cmp.Diff(before, catalog(t, db.Pool)); diff != "" {
		t.Error(diff)
	}
}

func TestCheckTellsOlderFromCurrent(t *testing.T) {
	t.Parallel()
	db := databases.EmptyDatabase(t)
	older := func(what string) {
		t.Helper()
		if err := migrations.Check(t.Context(), db.URL); !errors.Is(err, migrations.ErrOlderSchema) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	older("empty")
	exec(t, db.Pool, "create schema berth")
	older("schema without tables")
	upTo(t, db.URL, newest(t, db.URL)-1)
	older("the version before")
	up(t, db.URL)
	if err := migrations.Check(t.Context(), db.URL); err != nil {
		t.Errorf("current: %v", err)
	}
}

func TestStatusShowsWhatIsApplied(t *testing.T) {
	t.Parallel()
	db := databases.EmptyDatabase(t)
	upTo(t, db.URL, 2)
	for i, step := range status(t, db.URL) {
		if step.Version != int64(i+1) || step.Applied != (step.Version <= 2) || !strings.HasSuffix(step.Name, ".sql") {
			t.Errorf("step %d: %+v", i, step)
		}
	}
}

func TestURLErrorsDoNotQuoteThePassword(t *testing.T) {
	t.Parallel()
	const bad = "postgres://user:hunter2@host:notaport/name"
	for name, err := range map[string]error{
		"Up":    migrations.Up(t.Context(), bad, testkit.Logger(t)),
		"Check": migrations.Check(t.Context(), bad),
	} {
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "notaport") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Managed databases give no superuser: everything must work for a role that merely owns the database.
func TestOwnerOfTheDatabaseNeedsNoFurtherRights(t *testing.T) {
	t.Parallel()
	db := databases.EmptyDatabase(t)
	exec(t, db.Pool, "create role plain login password 'plain'")
	exec(t, db.Pool, "alter database "+db.Name+" owner to plain")
	address, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("plain", "plain")
	up(t, address.String())
	exec(t, db.Pool, "set role plain; select berth.begin_tick(interval '2 s', interval '6 s'), berth.presence_held(1); reset role")
	exec(t, db.Pool, "drop owned by plain cascade")
	exec(t, db.Pool, "alter database "+db.Name+" owner to current_user")
	exec(t, db.Pool, "drop role plain")
}
