package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/devpg"
)

// standby is a second server, which replays what the city's writes.
type standby struct {
	config devpg.Config
	server *devpg.Server
}

// newStandby copies the city's server and starts the copy, which follows it. Commits wait for it from then on.
func newStandby(t *testing.T, c *city) *standby {
	t.Helper()
	s := &standby{config: c.config}
	s.config.Dir, s.config.Port = filepath.Join(c.dir, "standby"), 0
	copyServer(t, c.server, s.config.Dir)
	server, err := devpg.Start(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.server = server
	t.Cleanup(func() {
		if err := server.Stop(detached(t)); err != nil {
			t.Errorf("stop the standby: %v", err)
		}
	})
	administer(t, c.server, "alter system set synchronous_standby_names = '*'")
	administer(t, c.server, "select pg_reload_conf()")
	conn := administrator(t, c.server)
	eventually(t, func() error {
		var state string
		err := conn.QueryRow(t.Context(), "select coalesce(max(sync_state), 'none') from pg_stat_replication").Scan(&state)
		if err == nil && state != "sync" {
			err = fmt.Errorf("the standby is %s", state)
		}
		return err
	})
	return s
}

// copyServer makes a directory for devpg that holds a copy of a running server, which will follow it.
func copyServer(t *testing.T, server *devpg.Server, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	owner, err := os.Stat(filepath.Join(server.Dir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	account, known := owner.Sys().(*syscall.Stat_t)
	if !known {
		t.Fatalf("%T says no owner", owner.Sys())
	}
	// pg_basebackup runs as the server's user, who may make the data directory in one of its own
	place := filepath.Join(dir, "copy")
	err = errors.Join(os.Mkdir(place, 0o700), os.Chown(place, int(account.Uid), int(account.Gid)))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(pgBinary(t, server, "pg_basebackup"), "-d", server.SocketURL("postgres"),
		"-D", filepath.Join(place, "data"), "-X", "stream", "-c", "fast", "-R", "--no-sync")
	command.Dir = place
	command.Env = append(foreignEnvironment(), "HOME="+place)
	command.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: account.Uid, Gid: account.Gid}
	}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, output)
	}
	password, err := os.ReadFile(filepath.Join(server.Dir(), "password"))
	err = errors.Join(err,
		os.Rename(filepath.Join(place, "data"), filepath.Join(dir, "data")),
		os.Remove(place),
		os.WriteFile(filepath.Join(dir, "password"), password, 0o600),
		os.WriteFile(filepath.Join(dir, "owner.lock"), nil, 0o600)) // it makes the directory one of devpg's
	if err != nil {
		t.Fatal(err)
	}
}

// pgBinary is a program beside the server's own.
func pgBinary(t *testing.T, server *devpg.Server, name string) string {
	t.Helper()
	binary, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server.PID()))
	if err != nil {
		t.Fatalf("find %s: %v", name, err)
	}
	return filepath.Join(filepath.Dir(binary), name)
}

// administrator connects as superuser, to this server only.
func administrator(t testing.TB, server *devpg.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.SocketURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(detached(t)) })
	return conn
}

func administer(t testing.TB, server *devpg.Server, statement string) {
	t.Helper()
	if _, err := administrator(t, server).Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// promote makes the standby the server that takes writes, and returns when it does. It waits for no standby itself: that
// setting is of the first server.
func (s *standby) promote(t testing.TB) {
	t.Helper()
	administer(t, s.server, "select pg_promote()")
}

// TestFailoverToASynchronousStandbyLosesNothing kills the database under load and promotes its synchronous standby. All
// processes have one address with both servers.
func TestFailoverToASynchronousStandbyLosesNothing(t *testing.T) {
	t.Parallel()
	var second *standby
	c := newCity(t, cityPlan{
		apis: 2, workers: 3, slots: 20,
		address: func(c *city) string {
			second = newStandby(t, c)
			return bothServers(t, c.server, second.server)
		},
	})
	held := c.holdSessions(t, 20)
	a, b := c.holdCall(t, c.name("call"))
	l := c.begin(t, loadPlan{})
	l.warm(t)
	before := c.mustOwners(t)
	generation := c.place(t, `{"id":"before"}`).Generation

	killed := time.Now()
	c.crashPostgres(t)
	second.promote(t)
	promoted := time.Now()
	eventually(t, func() error { return l.startedSince(promoted) })
	t.Logf("promoted %.2f s after the kill, the next start succeeded %.2f s after the kill",
		promoted.Sub(killed).Seconds(), l.lastStart().Sub(killed).Seconds())
	c.kept(t, before)
	c.ticked(t, settled)
	c.kept(t, before)
	l.end(t)

	allOpen(t, append(held, a, b)...)
	talk(t, a, b, "after the failover")
	if after := c.place(t, `{"id":"after"}`); after.Generation < generation+1000 {
		t.Errorf("generation %d before the failover and %d after: it must jump over what the old server may have handed out",
			generation, after.Generation)
	} else {
		t.Logf("generation %d before the failover, %d after", generation, after.Generation)
	}
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	c.nobodyEnded(t)
}

// bothServers is an address that leads to whichever of two servers takes writes.
func bothServers(t testing.TB, first, second *devpg.Server) string {
	t.Helper()
	one, two := fmt.Sprintf("127.0.0.1:%d", first.Port()), fmt.Sprintf("127.0.0.1:%d", second.Port())
	address := strings.Replace(first.URL(cityDatabase), one, one+","+two, 1)
	if !strings.Contains(address, two) {
		t.Fatalf("the address does not name %s", one)
	}
	return address + "&target_session_attrs=read-write"
}
