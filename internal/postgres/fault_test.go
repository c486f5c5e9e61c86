package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/devpg"
	"github.com/berthdev/berth/internal/postgres"
	"github.com/berthdev/berth/internal/testkit"
)

func TestFaultsOfWhichTheOutcomeIsUnknownAreUnavailable(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"connection exception":      &pgconn.PgError{Code: "08006"},
		"serialization failure":     &pgconn.PgError{Code: "40001"},
		"deadlock":                  &pgconn.PgError{Code: "40P01"},
		"too many connections":      &pgconn.PgError{Code: "53300"},
		"disk full":                 &pgconn.PgError{Code: "53100"},
		"statement timeout":         &pgconn.PgError{Code: "57014"},
		"shutdown":                  &pgconn.PgError{Code: "57P01"},
		"starting up":               &pgconn.PgError{Code: "57P03"},
		"io error":                  &pgconn.PgError{Code: "58030"},
		"standby":                   &pgconn.PgError{Code: "25006"},
		"lock timeout":              &pgconn.PgError{Code: "55P03"},
		"own deadline":              fmt.Errorf("query: %w", context.DeadlineExceeded),
		"reset":                     &net.OpError{Op: "read", Err: os.NewSyscallError("read", io.ErrUnexpectedEOF)},
		"closed in the middle":      fmt.Errorf("receive: %w", io.ErrUnexpectedEOF),
		"closed by the server":      fmt.Errorf("receive: %w", io.EOF),
		"closed by us":              fmt.Errorf("write: %w", net.ErrClosed),
		"nobody there, several try": &pgconn.ConnectError{},
	} {
		if got := postgres.Fault(err); !errors.Is(got, berth.ErrUnavailable) || !errors.Is(got, err) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestFaultsThatAreAnswersOrBugsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"unique violation":  &pgconn.PgError{Code: "23505"},
		"syntax error":      &pgconn.PgError{Code: "42601"},
		"code is missing":   &pgconn.PgError{},
		"caller gave up":    fmt.Errorf("query: %w", context.Canceled),
		"no rows":           pgx.ErrNoRows,
		"scan of a null":    errors.New("cannot scan NULL into *int"),
		"gave up and reset": errors.Join(context.Canceled, io.EOF),
	} {
		if got := postgres.Fault(err); errors.Is(got, berth.ErrUnavailable) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if postgres.Fault(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestMalformedURLIsNotQuoted(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://u:hunter2@host:notaport/x"})
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "notaport") {
		t.Errorf("got %v", err)
	}
	store, err := postgres.Open(t.Context(), postgres.Config{
		URL: "postgres://u@127.0.0.1:1/x", DirectURL: "postgres://u:hunter2@host:notaport/x",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Presence(t.Context(), 1); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestDatabaseThatIsAwayIsUnavailableAndComesBack(t *testing.T) {
	t.Parallel()
	server := testkit.StartPostgres(t, devpg.Config{})
	store, err := postgres.Open(t.Context(), postgres.Config{URL: server.URL("postgres")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Ping(t.Context()); err != nil {
		t.Fatalf("before: %v", err)
	}
	presence, err := store.Presence(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	<-presence.Done()
	for name, call := range map[string]func() error{
		"Ping":     func() error { return store.Ping(t.Context()) },
		"Place":    func() error { _, err := store.Place(t.Context(), start("a")); return err },
		"Renew":    func() error { _, err := store.Renew(t.Context(), berth.Renewal{WorkerID: "w"}); return err },
		"Presence": func() error { _, err := store.Presence(t.Context(), 1); return err },
		"the reaper's lock": func() error {
			_, err := store.WithReaperLock(t.Context(), func(context.Context) error { return nil })
			return err
		},
	} {
		if err := call(); !errors.Is(err, berth.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := presence.Close(t.Context()); err != nil {
		t.Errorf("close what is gone: %v", err)
	}
}
