package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func withDatabase(t *testing.T) shell {
	t.Helper()
	return shell{"BERTH_DATABASE_URL=" + databases.Database(t).URL}
}

func TestMigrateGoesUpAndDownAndSaysWhere(t *testing.T) {
	t.Parallel()
	sh := shell{"BERTH_DATABASE_URL=" + databases.EmptyDatabase(t).URL, "BERTH_LOG_LEVEL=warn"}
	for _, row := range table(t, sh.prints(t, "migrate", "status")) {
		if row["APPLIED"] != "false" {
			t.Errorf("in an empty database: %v", row)
		}
	}
	sh.prints(t, "migrate", "up")
	sh.prints(t, "migrate", "up") // nothing is missing
	steps := table(t, sh.prints(t, "migrate", "status"))
	for _, row := range steps {
		if row["APPLIED"] != "true" {
			t.Errorf("after up: %v", row)
		}
	}
	sh.prints(t, "tenant", "list")
	sh.prints(t, "migrate", "down")
	after := table(t, sh.prints(t, "migrate", "status"))
	if last := len(after) - 1; last != len(steps)-1 || after[last]["APPLIED"] != "false" || after[last-1]["APPLIED"] != "true" {
		t.Errorf("after down: %v", after)
	}
	sh.prints(t, "migrate", "up")
}

func TestToolsSayWhichDatabaseTheyMiss(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"tenant", "list"}, {"key", "list"}, {"region", "list"}}
	for _, args := range commands {
		shell{}.refuses(t, 2, "BERTH_DATABASE_URL", args...)
		shell{"BERTH_DATABASE_URL="}.refuses(t, 2, "BERTH_DATABASE_URL", args...)
		shell{"BERTH_DATABASE_URL=nonsense"}.refuses(t, 2, "BERTH_DATABASE_URL", args...)
	}
	shell{}.refuses(t, 2, "BERTH_DATABASE_URL", "migrate", "up")
	away := shell{"BERTH_DATABASE_URL=postgres://someone:hidden-word@127.0.0.1:1/berth?sslmode=disable"}
	for _, args := range append(commands, []string{"migrate", "status"}) {
		r := away.berth(t, args...)
		if r.code != 1 || r.stderr == "" || strings.Contains(r.stderr, "hidden-word") {
			t.Errorf("berth %v without a server: exit code %d: %s", args, r.code, r.stderr)
		}
	}
}

func TestTenantSetChangesWhatItIsTold(t *testing.T) {
	t.Parallel()
	sh := withDatabase(t)
	sh.prints(t, "region", "set", "eu-west")
	sh.prints(t, "tenant", "set", "acme", "--max-concurrent-sessions", "5", "--default-region", "eu-west")
	set := table(t, sh.prints(t, "tenant", "set", "acme", "--max-concurrent-sessions", "7"))
	if len(set) != 1 || set[0]["ID"] != "acme" || set[0]["MAX"] != "7" || set[0]["DEFAULT REGION"] != "eu-west" {
		t.Errorf("set prints %v", set)
	}
	sh.prints(t, "tenant", "set", "zeta")
	rows := table(t, sh.prints(t, "tenant", "list"))
	if len(rows) != 2 || rows[0]["ID"] != "acme" || rows[0]["MAX"] != "7" || rows[0]["LIVE"] != "0" || rows[0]["DEFAULT REGION"] != "eu-west" {
		t.Errorf("tenants: %v", rows)
	}
	if rows[1]["MAX"] != "none" || rows[1]["DEFAULT REGION"] != "-" {
		t.Errorf("a tenant without settings: %v", rows[1])
	}
	var tenants []map[string]any
	text := sh.prints(t, "tenant", "set", "acme", "--max-concurrent-sessions", "none", "--default-region", "", "-o", "json")
	if err := json.Unmarshal([]byte(text), &tenants); err != nil || len(tenants) != 1 || tenants[0]["id"] != "acme" || tenants[0]["max_concurrent_sessions"] != nil {
		t.Errorf("set prints %s: %v", text, err)
	}
	if err := json.Unmarshal([]byte(sh.prints(t, "tenant", "list", "--output", "json")), &tenants); err != nil || len(tenants) != 2 {
		t.Fatalf("%v: %v", err, tenants)
	}
	if acme := tenants[0]; acme["max_concurrent_sessions"] != nil || acme["default_region"] != nil || acme["live_sessions"] != 0.0 {
		t.Errorf("after its settings were taken back: %v", acme)
	}

	sh.refuses(t, 2, "tenant id is not valid", "tenant", "set", "no/slash")
	sh.refuses(t, 2, "tenant id is not valid", "tenant", "set", "")
	for _, quota := range []string{"-1", "many", "2147483648", "1.5", ""} {
		sh.refuses(t, 2, "--max-concurrent-sessions", "tenant", "set", "acme", "--max-concurrent-sessions="+quota)
	}
	sh.refuses(t, 1, "default_region", "tenant", "set", "acme", "--default-region", "nowhere")
	sh.refuses(t, 2, "--output must be table or json", "tenant", "list", "-o", "yaml")
	sh.refuses(t, 2, "arg(s)", "tenant", "set")
	sh.refuses(t, 2, "unknown command", "tenant", "remove", "acme")
	if rows := table(t, sh.prints(t, "tenant", "list")); len(rows) != 2 || rows[0]["MAX"] != "none" {
		t.Errorf("refused commands changed %v", rows)
	}
}

func TestTenantSetLimitsStartsAndChoosesAStrategy(t *testing.T) {
	t.Parallel()
	sh := withDatabase(t)
	expect := func(rate, burst, strategy string) {
		t.Helper()
		rows := table(t, sh.prints(t, "tenant", "list"))
		if len(rows) != 1 || rows[0]["STARTS/S"] != rate || rows[0]["BURST"] != burst || rows[0]["STRATEGY"] != strategy {
			t.Errorf("got %v, want %s, %s, %s", rows, rate, burst, strategy)
		}
	}
	sh.prints(t, "tenant", "set", "acme")
	expect("none", "-", "spread")
	sh.prints(t, "tenant", "set", "acme", "--start-rate", "2.5", "--strategy", "pack")
	expect("2.5", "3", "pack")
	sh.prints(t, "tenant", "set", "acme", "--start-burst", "20")
	expect("2.5", "20", "pack")
	sh.prints(t, "tenant", "set", "acme", "--start-rate", "0.5", "--strategy", "spread")
	expect("0.5", "20", "spread")

	for _, rate := range []string{"0", "-1", "NaN", "Inf", "1000001", "5/s", "many", ""} {
		sh.refuses(t, 2, "--start-rate", "tenant", "set", "acme", "--start-rate="+rate)
	}
	for _, burst := range []string{"0", "-1", "1.5", "1000001", "none", ""} {
		sh.refuses(t, 2, "--start-burst", "tenant", "set", "acme", "--start-burst="+burst)
	}
	sh.refuses(t, 2, "--strategy must be spread or pack", "tenant", "set", "acme", "--strategy", "random")
	expect("0.5", "20", "spread")
	sh.prints(t, "tenant", "set", "acme", "--start-rate", "none")
	expect("none", "-", "spread")
	sh.refuses(t, 2, "--start-burst", "tenant", "set", "acme", "--start-burst", "5")
}

func TestRegionIsRemovedOnceNothingNamesIt(t *testing.T) {
	t.Parallel()
	sh := withDatabase(t)
	sh.prints(t, "region", "set", "eu-west")
	sh.prints(t, "region", "set", "eu-north", "--spill", "eu-west")
	sh.prints(t, "tenant", "set", "acme", "--default-region", "eu-west")
	sh.refuses(t, 1, "eu-north", "region", "remove", "eu-west")
	sh.prints(t, "region", "set", "eu-north")
	sh.refuses(t, 1, "acme", "region", "remove", "eu-west")
	sh.prints(t, "tenant", "set", "acme", "--default-region", "")
	sh.prints(t, "region", "remove", "eu-west")
	if rows := table(t, sh.prints(t, "region", "list")); len(rows) != 1 || rows[0]["ID"] != "eu-north" {
		t.Errorf("regions: %v", rows)
	}
	sh.refuses(t, 1, "not_found", "region", "remove", "eu-west")
	sh.refuses(t, 2, "region is not valid", "region", "remove", "EU")
	sh.refuses(t, 2, "arg(s)", "region", "remove")
}

func TestRegionSetNeedsRegionsThatExist(t *testing.T) {
	t.Parallel()
	sh := withDatabase(t)
	sh.prints(t, "region", "set", "eu-west")
	sh.prints(t, "region", "set", "us-east")
	set := table(t, sh.prints(t, "region", "set", "eu-north", "--spill", "eu-west,us-east"))
	if len(set) != 1 || set[0]["ID"] != "eu-north" || set[0]["SPILLS TO"] != "eu-west, us-east" {
		t.Errorf("set prints %v", set)
	}
	if text := sh.prints(t, "region", "set", "us-east", "-o", "json"); !strings.Contains(text, `"id": "us-east"`) || strings.Contains(text, "eu-north") {
		t.Errorf("set prints %s", text)
	}
	rows := table(t, sh.prints(t, "region", "list"))
	if len(rows) != 3 || rows[0]["ID"] != "eu-north" || rows[0]["SPILLS TO"] != "eu-west, us-east" || rows[1]["SPILLS TO"] != "-" {
		t.Errorf("regions: %v", rows)
	}
	sh.refuses(t, 1, "spill", "region", "set", "eu-north", "--spill", "nowhere")
	for _, id := range []string{"EU", "", "a b", strings.Repeat("a", 33)} {
		sh.refuses(t, 2, "region is not valid", "region", "set", id)
	}
	sh.refuses(t, 2, "--spill", "region", "set", "eu-west", "--spill", "us-east,eu-west")
}

func TestKeysAreShownOnceAndTwoWork(t *testing.T) {
	t.Parallel()
	sh := withDatabase(t)
	sh.prints(t, "tenant", "set", "acme")
	create := []string{"key", "create", "--role", "tenant", "--tenant", "acme"}
	form := regexp.MustCompile(`^berth_(tenant|operator)_([a-z0-9]+)_([A-Z0-9]+)\n$`)
	first := form.FindStringSubmatch(sh.prints(t, create...))
	operator := form.FindStringSubmatch(sh.prints(t, "key", "create", "--role", "operator"))
	if first == nil || operator == nil || first[1] != "tenant" || operator[1] != "operator" {
		t.Fatalf("keys: %q and %q", first, operator)
	}
	sh.prints(t, create...)
	sh.refuses(t, 1, "two", create...)

	for _, output := range []string{"table", "json"} {
		list := sh.prints(t, "key", "list", "--output", output)
		if !strings.Contains(list, first[2]) || strings.Contains(list, first[3]) || strings.Contains(list, "hash") {
			t.Errorf("list as %s: %s", output, list)
		}
	}
	if rows := table(t, sh.prints(t, "key", "list", "--tenant", "acme")); len(rows) != 2 || rows[0]["TENANT"] != "acme" {
		t.Errorf("keys of one tenant: %v", rows)
	}

	sh.prints(t, "key", "revoke", first[2])
	sh.prints(t, create...)
	revoked := 0
	for _, row := range table(t, sh.prints(t, "key", "list")) {
		if row["REVOKED"] != "-" {
			revoked++
		}
	}
	if revoked != 1 {
		t.Errorf("%d keys are revoked", revoked)
	}

	sh.refuses(t, 1, "not_found", "key", "revoke", "unknown")
	sh.refuses(t, 1, "tenant", "key", "create", "--role", "tenant", "--tenant", "nobody")
	sh.refuses(t, 2, "--role must be tenant or operator", "key", "create")
	sh.refuses(t, 2, "--role must be tenant or operator", "key", "create", "--role", "root")
	sh.refuses(t, 2, "--tenant is needed", "key", "create", "--role", "tenant")
	sh.refuses(t, 2, "--tenant is needed", "key", "create", "--role", "operator", "--tenant", "acme")
}

func TestViewerSetMakesARoleThatReads(t *testing.T) {
	t.Parallel()
	database := databases.Database(t)
	sh := shell{"BERTH_DATABASE_URL=" + database.URL}
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if printed := sh.prints(t, "viewer", "set", "--password-file", file("s3cret-enough\n")); printed != "" {
		t.Errorf("printed %q", printed)
	}
	address, err := url.Parse(database.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("berth_viewer", "s3cret-enough")
	viewer := shell{"BERTH_DATABASE_URL=" + address.String()}
	sh.prints(t, "tenant", "set", "acme")
	viewer.prints(t, "tenant", "list")
	if r := viewer.berth(t, "why", "s-1", "--tenant", "acme"); !strings.Contains(r.stderr, "has no session s-1") {
		t.Errorf("why: %s%s", r.stderr, r.stdout)
	}
	viewer.refuses(t, 1, "", "tenant", "set", "other")
	sh.prints(t, "viewer", "set") // keeps the password
	viewer.prints(t, "region", "list")

	for _, content := range []string{"", "\n", "two\nlines\n", strings.Repeat("x", 2000)} {
		sh.refuses(t, 2, "--password-file", "viewer", "set", "--password-file", file(content))
	}
	sh.refuses(t, 2, "--password-file", "viewer", "set", "--password-file", "/does/not/exist")
	sh.refuses(t, 1, "ASCII", "viewer", "set", "--password-file", file("naïve"))
	viewer.refuses(t, 1, "read-only", "viewer", "set")
	shell{}.refuses(t, 2, "BERTH_DATABASE_URL", "viewer", "set")
}

func TestWhyTellsWhatHappenedToASession(t *testing.T) {
	t.Parallel()
	database := databases.Database(t)
	sh := shell{"BERTH_DATABASE_URL=" + database.URL}
	sh.prints(t, "region", "set", "eu")
	sh.prints(t, "tenant", "set", "acme", "--default-region", "eu")
	_, err := database.Pool.Exec(t.Context(), `
		select berth.register_worker('w-1', 1, 'eu', 2, 'ws://w-1', 'http://w-1', 'v1', 60), berth.open_worker('w-1', 1);
		select berth.register_worker('w-2', 2, 'eu', 2, 'ws://w-2', 'http://w-2', 'v1', 60, '{"gpu": "l4"}');
		insert into berth.sessions (key, tenant_id, id, state, region, requested_region, worker_id, instance, generation, handler,
			ttl_seconds, idle_timeout_seconds, created_at, placed_at, expires_at)
		values (1, 'acme', 's-1', 'active', 'eu', 'eu', 'w-1', 1, nextval('berth.generation_seq'), 'echo', 60, 60, now(), now(), now() + interval '1 hour');
		update berth.slots set session = 1 where worker_id = 'w-1' and ordinal = 1;
		insert into berth.session_events (session, tenant_id, session_id, type, data) values
			(1, 'acme', 's-1', 'created', '{"worker_id": "w-0", "instance": 7, "generation": 900, "region": "eu", "rank": 0.25}'),
			(1, 'acme', 's-1', 'displaced', '{"worker_id": "w-0", "generation": 900, "cause": "worker_lost"}'),
			(1, 'acme', 's-1', 'replaced', '{"worker_id": "w-1", "instance": 1, "generation": 901, "region": "eu", "rank": 0.5}');
		insert into berth.refusal_counts values (date_trunc('minute', now()), 'acme', 'eu', 'at_capacity', 12)`)
	if err != nil {
		t.Fatal(err)
	}
	text := sh.prints(t, "why", "s-1", "--tenant", "acme")
	for _, want := range []string{
		"Session s-1 of acme is active on w-1 in eu", "It asks for 1 slot in eu, strategy spread.", "Owners so far", "worker_lost",
		"1 worker could take it, 1 not", "it is starting", "the owner", "at_capacity  12",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	var shown struct {
		Session struct {
			State string `json:"state"`
		} `json:"session"`
		Owners []struct {
			WorkerID string `json:"worker_id"`
		} `json:"owners"`
	}
	if err := json.Unmarshal([]byte(sh.prints(t, "why", "s-1", "--tenant", "acme", "-o", "json")), &shown); err != nil ||
		shown.Session.State != "active" || len(shown.Owners) != 2 || shown.Owners[0].WorkerID != "w-0" {
		t.Errorf("as JSON: %v, %+v", err, shown)
	}
	for _, output := range []string{"table", "json"} {
		r := sh.berth(t, "why", "s-9", "--tenant", "acme", "-o", output)
		if r.code != 1 || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "tenant acme has no session s-9") ||
			!strings.Contains(r.stdout, "at_capacity") {
			t.Errorf("of an id that never was: exit code %d: %s%s", r.code, r.stderr, r.stdout)
		}
	}
	sh.refuses(t, 1, "not_found", "why", "s-1", "--tenant", "nobody")
	sh.refuses(t, 2, "--tenant", "why", "s-1")
	sh.refuses(t, 2, "session id is not valid", "why", "no/slash", "--tenant", "acme")
	sh.refuses(t, 2, "arg(s)", "why", "--tenant", "acme")
	sh.refuses(t, 2, "--output", "why", "s-1", "--tenant", "acme", "-o", "yaml")
}
