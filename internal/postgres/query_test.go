package postgres_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthdev/berth/internal/postgres"
)

func TestEveryQueryPrepares(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	queries, err := postgres.Queries()
	r.ok(err)
	if len(queries) < 40 {
		t.Errorf("only %d queries were found", len(queries))
	}
	conn, err := r.db.Pool.Acquire(t.Context())
	r.ok(err)
	defer conn.Release()
	for name, text := range queries {
		if _, err := conn.Conn().Prepare(t.Context(), name, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEveryQueryIsUsed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	queries, err := postgres.Queries()
	if err != nil {
		t.Fatal(err)
	}
	for name := range queries {
		if !strings.Contains(code.String(), `"`+name+`"`) {
			t.Errorf("nobody runs %s", name)
		}
	}
}
