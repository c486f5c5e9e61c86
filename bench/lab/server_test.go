package lab_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
)

func TestCopiesHoldWhatTheTemplateDoesAndShareNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, err := lab.Open(ctx, devpg.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	keys, err := server.Prepare(ctx, "template", lab.Plan{
		Region: "local", Tenants: []string{"a", "b"}, Fill: func(ctx context.Context, store *postgres.Store) error {
			_, err := store.Pool().Exec(ctx, "create table public.filled ()")
			return err
		},
	})
	if err != nil || len(keys) != 2 || keys["a"] == "" || keys["a"] == keys["b"] {
		t.Fatalf("keys of %d tenants: %v", len(keys), err)
	}
	tenants := func(database string) (n int) {
		t.Helper()
		conn, err := pgx.Connect(ctx, server.URL(database))
		if err != nil {
			t.Fatal(err)
		}
		err = conn.QueryRow(ctx, "select count(*) from berth.tenants, public.filled full join (values (1)) v (x) on true").Scan(&n)
		if err == nil {
			_, err = conn.Exec(ctx, "delete from berth.api_keys; delete from berth.tenants")
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(ctx); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, how := range []lab.Strategy{lab.CopyFiles, lab.CopyLog} {
		name, err := server.Copy(ctx, "template", how)
		if err != nil {
			t.Fatal(err)
		}
		if n := tenants(name); n != 2 {
			t.Errorf("%s: %d tenants, want those of the template", how, n)
		}
		if err := server.Drop(ctx, name); err != nil {
			t.Error(err)
		}
	}
}

func TestHostSaysWithWhatARunWas(t *testing.T) {
	t.Parallel()
	server, err := lab.Open(t.Context(), devpg.Config{})
	if err != nil {
		t.Fatal(err)
	}
	host, err := server.Describe(t.Context(), "v1")
	if err != nil || host.Berth != "v1" || host.Postgres == "" || host.Cores < 1 || time.Since(host.At) > time.Hour {
		t.Errorf("%+v: %v", host, err)
	}
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var none *lab.Server
	if err := none.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if text := lab.FileText("/does/not/exist"); text != "" {
		t.Errorf("of no file: %q", text)
	}
}
