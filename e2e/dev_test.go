package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDevReportsWhatItRuns(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	line, rest, _ := strings.Cut(s.output(), "\n")
	if rest != "" {
		t.Errorf("after the line: %q", rest)
	}
	decoder := json.NewDecoder(strings.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report{}); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	if !regexp.MustCompile(`^http://127\.0\.0\.1:[1-9]\d*$`).MatchString(s.APIURL) {
		t.Errorf("api_url %q", s.APIURL)
	}
	for path, key := range map[string]string{"/readyz": "", "/demo": "", "/v1/sessions": s.APIKey, "/v1/workers": s.OperatorKey} {
		if r := call(t, "GET", s.APIURL+path, key, ""); r.status != 200 {
			t.Errorf("GET %s: %d %s", path, r.status, r.body)
		}
	}
	if r := call(t, "GET", s.DashboardURL, "", ""); r.status != 200 || !strings.Contains(r.body, "<html") {
		t.Errorf("GET %s: %d", s.DashboardURL, r.status)
	}
	if len(s.Workers) != 3 {
		t.Errorf("%d workers", len(s.Workers))
	}
	for i, w := range s.Workers {
		url := query[string](t, s, "select signaling_url from berth.workers where id = $1 and state = 'ready'", w.ID)
		if w.ID != fmt.Sprintf("w%d", i+1) || !alive(w.PID) || w.SignalingURL != url {
			t.Errorf("worker %+v; the table has %s", w, url)
		}
	}
	if quota := query[bool](t, s, "select max_concurrent_sessions is null from berth.tenants where id = 'dev'"); !quota {
		t.Error("the dev tenant has a quota")
	}
}

// TestDevKilledLeavesNoProcess kills the parent alone; the next one cleans up what it could not.
func TestDevKilledLeavesNoProcess(t *testing.T) {
	t.Parallel()
	s := newStack(t, "--workers", "2")
	if hasProc() && len(leftovers(s.dir)) < 4 {
		t.Errorf("parent, PostgreSQL and two workers are not all found by their directory: %q", leftovers(s.dir))
	}
	s.signal(syscall.SIGKILL)
	killed := time.Now()
	if _, err := s.wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, s.noProcess)
	t.Logf("everything was gone %.2f s after the kill", time.Since(killed).Seconds())

	next := newStackIn(t, s.dir, "--workers", "1") // its end finds the directory empty
	if next.APIKey == s.APIKey {
		t.Error("two stacks have one key")
	}
}

func TestDevKeepsItsDataDirectory(t *testing.T) {
	t.Parallel()
	dir, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(run.dir, filepath.Base(dir)+"-data")
	first := newStackIn(t, dir, "--workers", "1", "--data", data)
	placed := call(t, "POST", first.APIURL+"/v1/sessions", first.APIKey, `{"id":"kept","ttl_seconds":86400}`)
	if placed.status != 201 {
		t.Fatalf("place: %d %s", placed.status, placed.body)
	}

	second, err := startProcess(dir, nil, "dev", "--json", "--listen", "127.0.0.1:0", "--data", data)
	if err != nil {
		t.Fatal(err)
	}
	if code, err := second.wait(); err != nil || code != 1 || !strings.Contains(second.errors(), data) {
		t.Errorf("a second owner of the directory: exit code %d, %v, says %q", code, err, second.errors())
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}

	again := newStackIn(t, dir, "--workers", "1", "--data", data)
	if r := call(t, "GET", again.APIURL+"/v1/sessions/kept", again.APIKey, ""); r.status != 200 {
		t.Errorf("the session of the first run: %d %s", r.status, r.body)
	}
	if r := call(t, "GET", again.APIURL+"/v1/sessions/kept", first.APIKey, ""); r.status != 401 {
		t.Errorf("the key of the first run: %d %s", r.status, r.body)
	}
	if r := call(t, "POST", again.APIURL+"/v1/sessions", again.APIKey, `{"id":"new"}`); r.status != 201 {
		t.Errorf("place in the second run: %d %s", r.status, r.body)
	}
}

func TestDevRefusesFlagsThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
		env  string
	}{
		{[]string{"--workers", "0"}, "--workers", ""},
		{[]string{"--workers", "33"}, "--workers", ""},
		{[]string{"--workers", "three"}, "--workers", ""},
		{[]string{"--listen", "0.0.0.0:8080"}, "--listen", ""},
		{[]string{"--listen", ":8080"}, "--listen", ""},
		{[]string{"--listen", "127.0.0.1"}, "--listen", ""},
		{[]string{"--listen", "127.0.0.1:99999"}, "--listen", ""},
		{[]string{"--listen", "127.0.0.1:http-alt-x"}, "--listen", ""},
		{[]string{"--listen", ""}, "--listen", ""},
		{[]string{"--nonsense"}, "--nonsense", ""},
		{[]string{"extra"}, `unknown command "extra"`, ""},
		{nil, "BERTH_LOG_LEVEL", "BERTH_LOG_LEVEL=loud"},
		{nil, "BERTH_LSITEN", "BERTH_LSITEN=127.0.0.1:1"},
	} {
		dir, err := newDir()
		if err != nil {
			t.Fatal(err)
		}
		var environment []string
		if c.env != "" {
			environment = []string{c.env}
		}
		p, err := startProcess(dir, environment, append([]string{"dev"}, c.args...)...)
		if err != nil {
			t.Fatal(err)
		}
		code, err := p.wait()
		if err != nil || code != 2 || !strings.Contains(p.errors(), c.says) || p.output() != "" {
			t.Errorf("%q %s: exit code %d, %v, says %q, prints %q", c.args, c.env, code, err, p.errors(), p.output())
		}
		if strings.Contains(p.errors(), "panic") || strings.Contains(p.errors(), "goroutine") {
			t.Errorf("%q: %s", c.args, p.errors())
		}
	}
}

// TestDevForPeople runs what it prints without --json, and finds its port in use.
func TestDevForPeople(t *testing.T) {
	t.Parallel()
	dir, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(dir, nil, "dev", "--workers", "1", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.showAfterFailure(t) })
	t.Cleanup(func() {
		p.interrupt()
		if err := p.endWell(); err != nil {
			t.Error(err)
		}
		if left := leftovers(dir); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	curl := regexp.MustCompile(`(?m)^\s*(curl .*/v1/sessions .*)$`)
	var line []string
	eventually(t, func() error {
		if p.ended() {
			return finalError{fmt.Errorf("ended: %s", p.errors())}
		}
		if line = curl.FindStringSubmatch(p.output()); line == nil {
			return fmt.Errorf("no curl line in %q", p.output())
		}
		return nil
	})
	for _, word := range []string{"demo", "dashboard", "API key", "psql"} {
		if !strings.Contains(p.output(), word) {
			t.Errorf("no %s in %s", word, p.output())
		}
	}
	answer := paste(t, line[1])
	if got := parse[placement](t, reply{status: 201, body: answer}); got.State != "assigned" || got.Owner.WorkerID != "w1" {
		t.Errorf("%s answered %s", line[1], answer)
	}

	taken := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`).FindStringSubmatch(line[1])[1]
	second, err := startProcess(dir, nil, "dev", "--workers", "1", "--listen", taken)
	if err != nil {
		t.Fatal(err)
	}
	code, err := second.wait()
	if err != nil || code != 1 || !strings.Contains(second.errors(), taken) || !strings.Contains(second.errors(), "address already in use") {
		t.Errorf("with its port in use: exit code %d, %v, says %s", code, err, second.errors())
	}
	if second.output() != "" {
		t.Errorf("it printed %q all the same", second.output())
	}
}

// paste runs a printed command line as a shell does, or as curl would where there is none.
func paste(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := exec.LookPath("curl"); err == nil {
		output, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, output)
		}
		return string(output)
	}
	parts := regexp.MustCompile(`-X POST (\S+) .*Bearer (\S+)' .*-d '(.*)'`).FindStringSubmatch(line)
	if parts == nil {
		t.Fatalf("not understood: %s", line)
	}
	return call(t, "POST", parts[1], parts[2], parts[3]).body
}

// TestDevSecondInterruptEndsAtOnce: whoever presses Ctrl-C again does not wait for a worker that does not react.
func TestDevSecondInterruptEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStack(t, "--workers", "1")
	if err := syscall.Kill(s.workerPID(t, "w1"), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.interrupt()
	eventually(t, func() error {
		if s.ended() {
			return nil
		}
		s.interrupt()
		return fmt.Errorf("still there")
	})
	if code, err := s.wait(); err != nil || code != -1 {
		t.Errorf("ended with %d, %v, not by the signal", code, err)
	}
	eventually(t, s.noProcess)
}
