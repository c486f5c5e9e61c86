//go:build chaos && linux

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newDisk mounts a small file system of its own.
func newDisk(t testing.TB, size string) (path string) {
	t.Helper()
	dir, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "disk")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	orSay(t, "mount a small file system", unix.Mount("tmpfs", path, "tmpfs", 0, "mode=0755,size="+size))
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
	return path
}

// fill writes until the disk is full, and returns how to free it.
func fill(t testing.TB, disk string) (free func()) {
	t.Helper()
	ballast, err := os.Create(filepath.Join(disk, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ballast.Close() }() // that the disk is full is known
	for size := 1 << 20; size > 0; size /= 2 {
		for err == nil {
			_, err = ballast.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("fill the disk: %v", err)
		}
		err = nil
	}
	return func() {
		if err := os.Remove(ballast.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScenario_F18_FullDiskRefusesStartsAndLosesNobody fills the disk of the database's tables. Its log is elsewhere, as
// operators have it: where both are on one disk, Postgres itself stops, which is the outage of F05.
func TestScenario_F18_FullDiskRefusesStartsAndLosesNobody(t *testing.T) {
	t.Parallel()
	disk := newDisk(t, "256m")
	c := newCity(t, cityPlan{
		apis: 2, workers: 2, slots: 100, worker: shortLease, api: shortLease[:1], data: filepath.Join(disk, "pg"),
	})
	c.moveLog(t)
	held := c.holdSessions(t, 10)
	before := c.mustOwners(t)

	free := fill(t, disk)
	full := time.Now()
	starts := c.startUntilRefused(t)
	t.Logf("the start after %d others was refused", starts)
	for i := range held {
		if r := c.call(t, "GET", fmt.Sprintf("/v1/sessions/live-%d", i), ""); r.status != http.StatusOK {
			t.Errorf("read a session: %d %s", r.status, r.body)
		}
	}
	if r := c.call(t, "GET", "/v1/sessions", ""); r.status != http.StatusOK {
		t.Errorf("list sessions: %d %s", r.status, r.body)
	}
	answers(t, c.APIURL+"/readyz", http.StatusServiceUnavailable)
	answers(t, c.APIURL+"/livez", http.StatusOK)
	after(3 * shortTerm)
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}

	free()
	freed := time.Now()
	eventually(t, func() error {
		if r := c.call(t, "POST", "/v1/sessions", `{"id":"afterwards"}`); r.status != 201 && r.status != 200 {
			return fmt.Errorf("start: %d %s", r.status, r.body)
		}
		return nil
	})
	t.Logf("full for %.1f s; the next start succeeded %.2f s after there was room", freed.Sub(full).Seconds(), time.Since(freed).Seconds())
	c.ticked(t, settled)
	c.kept(t, before)
	allOpen(t, held...)
	if lost := c.losses(t); len(lost) > 0 {
		t.Errorf("declared lost: %s", strings.Join(lost, "; "))
	}
	c.nobodyEnded(t)
}

// moveLog moves the write-ahead log to another disk.
func (c *city) moveLog(t testing.TB) {
	t.Helper()
	c.stopPostgres(t)
	from, to := filepath.Join(c.server.Dir(), "data", "pg_wal"), filepath.Join(c.dir, "wal")
	err := errors.Join(command("cp", "-a", from, to), os.RemoveAll(from), os.Symlink(to, from))
	if err != nil {
		t.Fatal(err)
	}
	c.startPostgres(t)
	eventually(t, func() error { // API processes and workers are back
		if r := c.call(t, "POST", "/v1/sessions", `{"id":"first"}`); r.status != 201 && r.status != 200 {
			return fmt.Errorf("start: %d %s", r.status, r.body)
		}
		return nil
	})
	c.ticked(t, settled)
}

// startUntilRefused starts sessions and ends them until one start is refused because the database cannot write it. It
// returns how many succeeded.
func (c *city) startUntilRefused(t testing.TB) int {
	t.Helper()
	const most = 20000
	for i := range most {
		r := c.call(t, "POST", "/v1/sessions", fmt.Sprintf(`{"id":"full-%d","metadata":{"filler":%q}}`, i, strings.Repeat("x", 1000)))
		if r.status == http.StatusServiceUnavailable {
			if code := r.code(t); code != "unavailable" {
				t.Errorf("refused as %s: %s", code, r.body)
			}
			return i
		}
		if r.status != http.StatusCreated {
			t.Fatalf("start %d: %d %s", i, r.status, r.body)
		}
		// the end may be what finds the disk full: then the session stays, until its connect window ends it
		if r := c.call(t, "DELETE", fmt.Sprintf("/v1/sessions/full-%d", i), ""); r.status != http.StatusNoContent {
			if r.code(t) != "unavailable" {
				t.Errorf("end %d: %d %s", i, r.status, r.body)
			}
			t.Logf("the end of %d was refused", i)
		}
	}
	t.Fatalf("%d starts on a full disk, and none was refused", most)
	return most
}
