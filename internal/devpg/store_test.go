package devpg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// startError starts a server that must not start, and returns why.
func startError(t *testing.T, cfg Config) string {
	t.Helper()
	server, err := Start(t.Context(), cfg)
	if err == nil {
		stop(t, server)
		t.Fatal("the server started")
	}
	return err.Error()
}

func remember(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create table memory as select 42 as answer")
	return errors.Join(err, conn.Close(ctx))
}

// One cluster goes through what can happen to it, since each initdb is dear.
func TestStoreIsKeptAndOwned(t *testing.T) {
	t.Parallel()
	root := tempRoot(t)
	cfg := Config{Dir: filepath.Join(root, "not", "there", "yet"), Durable: true, TempDir: root}
	server := start(t, cfg)
	url := server.URL("postgres")
	if fsync := query[string](t, url, "show fsync"); fsync != "on" {
		t.Errorf("durable, but fsync is %s", fsync)
	}
	if err := remember(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if reason := startError(t, cfg); !strings.Contains(reason, "is in use: stop that server first") {
		t.Errorf("a second owner got %s", reason)
	}
	cfg.Port = server.Port()
	stop(t, server)

	again := start(t, cfg)
	if again.URL("postgres") != url {
		t.Error("the address changed although port and directory did not")
	}
	if answer := query[int](t, url, "select answer from memory"); answer != 42 {
		t.Errorf("remembered %d", answer)
	}
	stop(t, again)

	survivesItsOwner(t, cfg)
	refusesForeignServer(t, cfg)
	refusesOtherMajor(t, cfg)
}

func survivesItsOwner(t *testing.T, cfg Config) {
	t.Helper()
	owner, report := startOwner(t, cfg)
	kill(t, owner)
	server := start(t, cfg) // at once, while the old server may still be ending
	if server.URL("postgres") != report.URL {
		t.Error("the address changed although port and directory did not")
	}
	if answer := query[int](t, report.URL, "select answer from memory"); answer != 42 {
		t.Errorf("remembered %d", answer)
	}
	stop(t, server)
	if entries, err := filepath.Glob(filepath.Join(cfg.TempDir, scratchPrefix+"*")); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

// refusesForeignServer stands for a person who ran pg_ctl on the directory.
func refusesForeignServer(t *testing.T, cfg Config) {
	t.Helper()
	binaries, err := findInstall(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(cfg.Dir, "data")
	who, err := serverAccount(data)
	if err != nil {
		t.Fatal(err)
	}
	foreign := exec.Command(binaries.postgres(), "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+data)
	foreign.Dir, foreign.SysProcAttr = "/", who.attributes()
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		state, err := readPIDFile(data)
		if err == nil && (state.pid != foreign.Process.Pid || state.status != "ready") {
			err = errors.New("foreign server is not ready")
		}
		return err
	})
	if reason := startError(t, cfg); !strings.Contains(reason, "started by other means") {
		t.Errorf("beside a foreign server: %s", reason)
	}
	if err := foreign.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := foreign.Wait(); err != nil {
		t.Errorf("the foreign server: %v", err)
	}
}

func refusesOtherMajor(t *testing.T, cfg Config) {
	t.Helper()
	version := filepath.Join(cfg.Dir, "data", "PG_VERSION")
	if err := os.WriteFile(version, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if reason := startError(t, cfg); !strings.Contains(reason, "was made by PostgreSQL 9") {
		t.Errorf("got %s", reason)
	}
}

func TestStoreRefusesSomethingElse(t *testing.T) {
	t.Parallel()
	root := tempRoot(t)
	photo := filepath.Join(root, "photo")
	if err := os.WriteFile(photo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if reason := startError(t, Config{Dir: root, TempDir: root}); !strings.Contains(reason, "holds something else") {
		t.Errorf("got %s", reason)
	}
	if !exists(t, photo) {
		t.Error("what was there is gone")
	}
}
