package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// tempRoot is a directory for scratch directories that the server's user may
// enter and other test processes do not sweep.
func tempRoot(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp(MemoryDir(), "devpg-test-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	return root
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.TempDir == "" {
		cfg.TempDir = tempRoot(t)
	}
	server, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, server) })
	return server
}

func stop(t *testing.T, server *Server) {
	t.Helper()
	if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// query returns the only value that a statement yields.
func query[T any](t *testing.T, url, statement string) T {
	t.Helper()
	value, err := tryQuery[T](t.Context(), url, statement)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func tryQuery[T any](ctx context.Context, url, statement string) (value T, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return value, err
	}
	err = conn.QueryRow(ctx, statement).Scan(&value)
	return value, errors.Join(err, conn.Close(ctx))
}

func TestServer(t *testing.T) {
	t.Parallel()
	server := start(t, Config{Settings: map[string]string{"work_mem": "5MB"}})
	for name, check := range map[string]func(*testing.T, *Server){
		"answers on loopback and socket":     answersOnLoopbackAndSocket,
		"needs the password on loopback":     needsPasswordOnLoopback,
		"creates a database twice":           createsDatabaseTwice,
		"names a port that is taken":         namesTakenPort,
		"runs beside another in one root":    runsBesideAnother,
		"runs as somebody other than root":   runsUnprivileged,
		"listens on nothing but the address": listensOnLoopbackOnly,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, server)
		})
	}
}

func answersOnLoopbackAndSocket(t *testing.T, server *Server) {
	t.Helper()
	for name, url := range map[string]string{"tcp": server.URL("postgres"), "socket": server.SocketURL("postgres")} {
		settings := query[string](t, url, `select concat_ws(' ', current_user, current_setting('server_encoding'),
			current_setting('fsync'), current_setting('client_connection_check_interval'), current_setting('work_mem'))`)
		if want := "berth UTF8 off 500ms 5MB"; settings != want {
			t.Errorf("%s: got %q, want %q", name, settings, want)
		}
	}
}

func needsPasswordOnLoopback(t *testing.T, server *Server) {
	t.Helper()
	url := strings.Replace(server.URL("postgres"), server.password, "guess", 1)
	if _, err := tryQuery[int](t.Context(), url, "select 1"); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("a wrong password gave %v", err)
	}
	info, err := os.Stat(server.store.password())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("password file has mode %v", info.Mode())
	}
}

func createsDatabaseTwice(t *testing.T, server *Server) {
	t.Helper()
	for range 2 {
		if err := server.CreateDatabase(t.Context(), `odd "name"`); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.CreateDatabase(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	if name := query[string](t, server.URL("plain"), "select current_database()"); name != "plain" {
		t.Errorf("connected to %q", name)
	}
}

func namesTakenPort(t *testing.T, server *Server) {
	t.Helper()
	_, err := Start(t.Context(), Config{Port: server.Port(), TempDir: tempRoot(t)})
	if err == nil || !strings.Contains(err.Error(), "is in use: choose another") {
		t.Errorf("got %v", err)
	}
}

func runsBesideAnother(t *testing.T, server *Server) {
	t.Helper()
	other := start(t, Config{TempDir: filepath.Dir(server.Dir())})
	if other.Port() == server.Port() || other.Dir() == server.Dir() {
		t.Errorf("two servers share port %d or directory %s", other.Port(), other.Dir())
	}
	query[int](t, other.URL("postgres"), "select 1")
	query[int](t, server.URL("postgres"), "select 1")
}

func runsUnprivileged(t *testing.T, server *Server) {
	t.Helper()
	for _, pid := range processesIn(t, server.store.data()) {
		owner, ok := ownerOf(fmt.Sprintf("/proc/%d", pid))
		if !ok || owner.uid == 0 || owner.uid != server.who.uid {
			t.Errorf("process %d runs as user id %d, want %d", pid, owner.uid, server.who.uid)
		}
	}
}

func listensOnLoopbackOnly(t *testing.T, server *Server) {
	t.Helper()
	if addresses := query[string](t, server.URL("postgres"), "show listen_addresses"); addresses != "127.0.0.1" {
		t.Errorf("listens on %s", addresses)
	}
}

func TestStopIsIdempotentConcurrentAndLeavesNothing(t *testing.T) {
	t.Parallel()
	root := tempRoot(t)
	server := start(t, Config{TempDir: root})
	data := server.store.data()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			stop(t, server)
			if !server.proc.exited() {
				t.Error("Stop returned while the server ran")
			}
		})
	}
	callers.Wait()
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
	if left := processesIn(t, data); len(left) != 0 {
		t.Errorf("still running: %v", left)
	}
}

func TestStopWithoutTimeLeftIsForced(t *testing.T) {
	t.Parallel()
	server, err := Start(t.Context(), Config{TempDir: tempRoot(t)})
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, server.PID())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Stop(over); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(server.scratch.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("scratch directory: %v", err)
	}
}

func TestDeathIsNoticed(t *testing.T) {
	t.Parallel()
	server := start(t, Config{})
	if err := server.Err(); err != nil {
		t.Errorf("while running: %v", err)
	}
	if err := server.proc.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-server.Done()
	if err := server.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	root := tempRoot(t)
	_, err := Start(t.Context(), Config{TempDir: root, Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the reason is missing from %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(root, "*")); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]Config{
		"Listen":         {Listen: "0.0.0.0"},
		"Port":           {Port: 70000},
		"MaxConnections": {MaxConnections: 1},
	} {
		if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
