package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sources are the lines of each migration, by file.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	texts := map[string][]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = strings.Split(string(text), "\n")
	}
	return texts
}

func TestEveryConstraintIsNamed(t *testing.T) {
	t.Parallel()
	rule := regexp.MustCompile(`\b(primary key|unique|references|check) ?\(|\breferences \w|\bprimary key\b`)
	named := regexp.MustCompile(`\bconstraint \w+ `)
	for file, text := range sources(t) {
		for i, line := range text {
			line, _, _ = strings.Cut(line, "--")
			if rule.MatchString(line) && !named.MatchString(line) {
				t.Errorf("%s:%d: a rule without a name: errors could not be told apart", file, i+1)
			}
		}
	}
}

func TestConstraintsBeginWithTheirTable(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	astray := lines(t, db.Pool, `select conname::text from pg_constraint c join pg_class r on r.oid = c.conrelid
		where c.connamespace = 'berth'::regnamespace and r.relname <> 'schema_version'
		  and not starts_with(conname, r.relname)`)
	if len(astray) > 0 {
		t.Errorf("%v", astray)
	}
}

func TestEveryIndexSaysWhatItServes(t *testing.T) {
	t.Parallel()
	for file, text := range sources(t) {
		for i, line := range text {
			if regexp.MustCompile(`^create (unique )?index`).MatchString(line) && !strings.HasPrefix(text[i-1], "-- Serves") {
				t.Errorf("%s:%d: put a line \"-- Serves: the query\" above", file, i+1)
			}
		}
	}
}

// Unnamed schemas would resolve by the caller's search_path.
func TestFunctionsAndViewsNameTheirSchema(t *testing.T) {
	t.Parallel()
	bare := regexp.MustCompile(`\b(from|join|update|into|table|view|function) (sessions|slots|workers|tenants|peers|gaps|regions)\b`)
	for file, text := range sources(t) {
		for i, line := range text {
			line, _, _ = strings.Cut(line, "--")
			if bare.MatchString(line) {
				t.Errorf("%s:%d: %s", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}
