package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed code/*.sql
var codeFiles embed.FS

// firstWithoutCode is the first migration whose tables have their functions and views in folder code. Those before it
// made them in numbered files, from firstOldCode on.
const (
	firstWithoutCode = 8
	firstOldCode     = 3
)

// dropCodeStatement drops every function and view of the schema. Tables do not depend on them, and triggers go with them.
const dropCodeStatement = `
do $$
declare
    thing record;
begin
    for thing in select format('%I.%I', schemaname, viewname) as name from pg_views where schemaname = 'berth' loop
        execute 'drop view if exists ' || thing.name || ' cascade';
    end loop;
    for thing in select oid::regprocedure as name from pg_proc where pronamespace = 'berth'::regnamespace loop
        execute format('drop function if exists %s cascade', thing.name);
    end loop;
end
$$`

// code is the text of all functions and views of the newest version. Bodies of functions are checked by their first use,
// which is a test's; a view, whose parts are looked up at once, stands in a file after those of the functions that it uses.
func code() (string, error) {
	names, err := fs.Glob(codeFiles, "code/*.sql")
	if err != nil {
		return "", fmt.Errorf("read embedded code: %w", err)
	}
	text := strings.Builder{}
	text.WriteString("set local check_function_bodies = off;\n")
	for _, name := range names {
		part, err := codeFiles.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read embedded code: %w", err)
		}
		text.Write(part)
		text.WriteString("\n")
	}
	text.WriteString("select berth.grant_viewer();\n") // what was made anew has no grants
	return text.String(), nil
}

// codeDigest names a version of the code. The schema carries it as its comment, so that a program can tell.
func codeDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "code " + hex.EncodeToString(sum[:8])
}

// codeComment reads what the schema carries; empty where there is no code, or that of numbered files.
const codeComment = `select coalesce(obj_description('berth'::regnamespace, 'pg_namespace'), '')`

// checkCode says whether the functions and views of the newest version are this program's: ErrOlderSchema otherwise, also
// after a way down, which leaves none.
func checkCode(ctx context.Context, conn *pgx.Conn) error {
	text, err := code()
	if err != nil {
		return err
	}
	var have string
	if err := conn.QueryRow(ctx, codeComment).Scan(&have); err != nil {
		return fmt.Errorf("read the schema's comment: %w", err)
	}
	if have != codeDigest(text) {
		return ErrOlderSchema
	}
	return nil
}

// dropCode makes way for a change of tables. A process that calls a function meanwhile finds none, and answers that the
// database is unavailable.
func (m *migrator) dropCode(ctx context.Context) error { return m.run(ctx, dropCodeStatement, "") }

// replaceCode makes the functions and views of this program where the tables are at its version: at once, and not at all
// where they are there already, so that others notice nothing.
func (m *migrator) replaceCode(ctx context.Context) error {
	text, err := code()
	if err != nil {
		return err
	}
	var have string
	if err := m.pool.QueryRow(ctx, codeComment).Scan(&have); err != nil {
		return fmt.Errorf("read the schema's comment: %w", err)
	}
	if have == codeDigest(text) {
		return nil
	}
	return m.run(ctx, dropCodeStatement+";\n"+text, codeDigest(text))
}

// makeCode gives the tables, at whatever version they are, the functions and views that go with them.
func (m *migrator) makeCode(ctx context.Context) error {
	version, err := m.version(ctx)
	if err != nil {
		return err
	}
	switch {
	case version == m.latest():
		text, err := code()
		if err != nil {
			return err
		}
		return m.run(ctx, text, codeDigest(text))
	case version == firstWithoutCode-1:
		return m.makeOldCode(ctx)
	default: // on the way, where nothing may run; or so far down that numbered files have it
		return nil
	}
}

// makeOldCode runs what numbered files made before there was a folder of code. A database at the version before the
// first without code has it already when it comes from below; then nothing is done.
func (m *migrator) makeOldCode(ctx context.Context) error {
	var present bool
	err := m.pool.QueryRow(ctx, `select exists (select from pg_proc where pronamespace = 'berth'::regnamespace)`).Scan(&present)
	if err != nil || present {
		return err
	}
	text := strings.Builder{}
	for version := firstOldCode; version < firstWithoutCode; version++ {
		names, err := fs.Glob(files, fmt.Sprintf("sql/%05d_*.sql", version))
		if err != nil || len(names) != 1 {
			return fmt.Errorf("read embedded migration %d: %w", version, err)
		}
		part, err := files.ReadFile(names[0])
		if err != nil {
			return fmt.Errorf("read embedded migration %d: %w", version, err)
		}
		up, _, _ := strings.Cut(string(part), "-- +goose Down")
		text.WriteString(up)
	}
	return m.run(ctx, text.String(), "")
}

// run executes statements in one transaction and sets the schema's comment.
func (m *migrator) run(ctx context.Context, text, comment string) error {
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, text); err != nil {
			return fmt.Errorf("change functions and views: %w", err)
		}
		_, err := tx.Exec(ctx, fmt.Sprintf("comment on schema %s is '%s'", Schema, comment))
		return err
	})
}
