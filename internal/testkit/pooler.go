package testkit

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StartPooler starts PgBouncer in transaction mode in front of db, until the test ends, and returns the URL through it.
func StartPooler(t testing.TB, db *DB) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/pgbouncer") // where Debian has it, off the path of people
	}
	if err != nil {
		t.Fatalf("PgBouncer is not installed (Debian: apt-get install pgbouncer): %v", err)
	}
	target, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	password, _ := target.User.Password()
	config := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
`, target.Hostname(), target.Port(), target.User.Username(), password, port)
	dir, err := os.MkdirTemp("", "pooler") //nolint:usetesting // PgBouncer's user may not enter what t.TempDir is in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	command := exec.CommandContext(context.WithoutCancel(t.Context()), binary, file) // until the clean-up
	command.Stdout, command.Stderr = &output, &output
	if os.Geteuid() == 0 { // it refuses to be root
		const nobody = 65534
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for _, path := range []string{dir, file} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // says that it was killed
		if t.Failed() {
			t.Logf("pgbouncer: %s", strings.TrimSpace(output.String()))
		}
	})
	target.Host = fmt.Sprintf("127.0.0.1:%d", port)
	Eventually(t, setupTimeout, func() error {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", target.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return target.String()
}

// freePort is a port that was free a moment ago: PgBouncer does not choose one.
func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("address %v", listener.Addr())
	}
	return address.Port
}
