package migrations_test

import (
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

const viewerPassword = "correct horse 'battery' staple"

// viewerMu admits one change of the role at a time: it is of the whole server.
var viewerMu sync.Mutex

func setViewer(t *testing.T, address, password string) error {
	t.Helper()
	viewerMu.Lock()
	defer viewerMu.Unlock()
	return migrations.SetViewer(t.Context(), address, password, testkit.Logger(t))
}

// as is the address of db for another user.
func as(t *testing.T, db *testkit.DB, user, password string) string {
	t.Helper()
	address, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(user, password)
	return address.String()
}

// viewer connects as the role, by password.
func viewer(t *testing.T, db *testkit.DB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), as(t, db, migrations.Viewer, viewerPassword))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func denied(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "42501"
}

func TestViewerReadsAllButSecretsAndWritesNothing(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	for range 2 { // again is no harm
		if err := setViewer(t, db.URL, viewerPassword); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, db.Pool)
	conn := viewer(t, db)
	for _, relation := range lines(t, db.Pool, `select relname::text from pg_class
		where relnamespace = 'berth'::regnamespace and relkind in ('r', 'v', 'p')`) {
		_, err := conn.Exec(t.Context(), "select * from berth."+relation)
		secret := relation == "signing_keys" || relation == "server_secrets" || relation == "api_keys" || relation == "renewal_secrets"
		if secret && !denied(err) || !secret && err != nil {
			t.Errorf("read %s: %v", relation, err)
		}
	}
	for _, column := range []string{"seed from berth.signing_keys", "secret from berth.server_secrets", "hash from berth.api_keys", "hash from berth.renewal_secrets"} {
		if _, err := conn.Exec(t.Context(), "select "+column); !denied(err) {
			t.Errorf("select %s: %v", column, err)
		}
	}
	for _, query := range []string{"kid, public from berth.signing_keys", "purpose from berth.server_secrets", "id, role, revoked_at from berth.api_keys"} {
		if _, err := conn.Exec(t.Context(), "select "+query); err != nil {
			t.Errorf("select %s: %v", query, err)
		}
	}
	if _, err := conn.Exec(t.Context(), "set default_transaction_read_only = off"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"update berth.sessions set state = 'ended'", "delete from berth.slots", "truncate berth.peers", "create table berth.x (a int)",
		"select berth.set_tenant('t1', null, 0, null, null, 'spread')", "select nextval('berth.generation_seq')",
		"select berth.drain_worker('w1', null, 0, true)", "select from berth.slots for update",
	} {
		if _, err := conn.Exec(t.Context(), statement); !denied(err) {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func TestViewerCannotHoldASnapshotForLong(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	if err := setViewer(t, db.URL, viewerPassword); err != nil {
		t.Fatal(err)
	}
	conn := viewer(t, db)
	for setting, want := range map[string]string{
		"statement_timeout": "30s", "idle_in_transaction_session_timeout": "15s", "default_transaction_read_only": "on",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "show "+setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", setting, got, err, want)
		}
	}
}

// Functions and views are made anew by each migration, and have no grants then.
func TestViewerStillReadsAfterAMigration(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	if err := setViewer(t, db.URL, viewerPassword); err != nil {
		t.Fatal(err)
	}
	down(t, db.URL)
	up(t, db.URL)
	conn := viewer(t, db)
	for _, relation := range []string{"violations", "capacity", "session_events"} {
		if _, err := conn.Exec(t.Context(), "select * from berth."+relation); err != nil {
			t.Errorf("read %s: %v", relation, err)
		}
	}
}

func TestViewerIsMadeByThoseWhoMayAndNotHalf(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	exec(t, db.Pool, "create role humble login password 'x'")
	exec(t, db.Pool, "create role maker login createrole password 'x'")
	defer exec(t, db.Pool, "drop role humble, maker")
	if err := setViewer(t, as(t, db, "humble", "x"), ""); err == nil || !strings.Contains(err.Error(), "createrole") {
		t.Errorf("without createrole: %v", err)
	}
	if err := setViewer(t, as(t, db, "maker", "x"), ""); err == nil {
		t.Error("somebody who does not own the schema granted it")
	}
	empty := databases.EmptyDatabase(t)
	if err := setViewer(t, empty.URL, ""); !errors.Is(err, migrations.ErrOlderSchema) {
		t.Errorf("without a schema: %v", err)
	}
	for _, password := range []string{"naïve", "two\nlines", "\x00"} {
		if err := setViewer(t, db.URL, password); err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("password %q: %v", password, err)
		}
	}
	if err := setViewer(t, "postgres://user:hunter2@host:notaport/name", ""); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("malformed url: %v", err)
	}
}

// plainColumns need no word: they mean what the glossary says wherever they stand.
const plainColumns = `{tenant_id,worker_id,session_id,region,state,handler,created_at,registered_at,selector,minute,refusals,since,start_burst,what}`

func TestViewsForPeopleSayWhatTheyShow(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	silent := lines(t, db.Pool, `select relname || '.' || attname from pg_class c
		join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
		where c.relnamespace = 'berth'::regnamespace and c.relkind = 'v' and relname <> 'session_rows'
		  and (obj_description(c.oid, 'pg_class') is null
		       or col_description(c.oid, a.attnum) is null and not a.attname = any ($1::name[]))`, plainColumns)
	if len(silent) > 0 {
		t.Errorf("without a comment: %v", silent)
	}
}
