package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/postgres"
)

// report is the line that `berth dev --json` prints.
type report struct {
	APIURL       string         `json:"api_url"`
	DashboardURL string         `json:"dashboard_url"`
	APIKey       string         `json:"api_key"`
	OperatorKey  string         `json:"operator_key"`
	DatabaseURL  string         `json:"database_url"`
	Workers      []reportWorker `json:"workers"`
}

type reportWorker struct {
	ID           string `json:"id"`
	PID          int    `json:"pid"`
	SignalingURL string `json:"signaling_url"`
}

// workerPID is the process of a worker when the stack was ready.
func (r report) workerPID(t testing.TB, workerID string) int {
	t.Helper()
	for _, w := range r.Workers {
		if w.ID == workerID {
			return w.PID
		}
	}
	t.Fatalf("no worker %q in %v", workerID, r.Workers)
	return 0
}

// stack is a running `berth dev` and a connection to its database.
type stack struct {
	*process
	report

	dir   string
	store *postgres.Store
	took  time.Duration // from its start until it was ready
}

// newDir makes a directory for one stack, which PostgreSQL's user may enter. Its path is short: there will be a Unix
// socket in it.
func newDir() (string, error) {
	dir, err := os.MkdirTemp(run.dir, "s")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// startStack starts `berth dev --json` on a free port and waits until it is ready.
func startStack(args ...string) (*stack, error) {
	dir, err := newDir()
	if err != nil {
		return nil, err
	}
	return startStackIn(dir, args...)
}

func startStackIn(dir string, args ...string) (*stack, error) {
	began := time.Now()
	p, err := startProcess(dir, nil, append([]string{"dev", "--json", "--listen", "127.0.0.1:0"}, args...)...)
	if err != nil {
		return nil, err
	}
	s := &stack{process: p, dir: dir}
	if s.report, err = p.awaitReport(); err != nil {
		return nil, errors.Join(err, p.stop(syscall.SIGINT))
	}
	s.took = time.Since(began)
	s.store, err = postgres.Open(context.Background(), postgres.Config{URL: s.DatabaseURL, Name: "e2e", PoolSize: 8})
	if err != nil {
		return nil, errors.Join(err, p.stop(syscall.SIGINT))
	}
	return s, nil
}

// awaitReport waits for the one line.
func (p *process) awaitReport() (report, error) {
	var r report
	err := poll(patience, func() error {
		if p.ended() {
			return finalError{fmt.Errorf("%s ended: %w: %s", p.name, p.err, p.errors())}
		}
		line, _, complete := strings.Cut(p.output(), "\n")
		if !complete {
			return fmt.Errorf("%s is not ready: %s", p.name, p.errors())
		}
		return json.Unmarshal([]byte(line), &r)
	})
	return r, err
}

// newStack starts a stack that the test has to itself.
func newStack(t testing.TB, args ...string) *stack {
	t.Helper()
	dir, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	return newStackIn(t, dir, args...)
}

// newStackIn is newStack in a directory where another one was before.
func newStackIn(t testing.TB, dir string, args ...string) *stack {
	t.Helper()
	s, err := startStackIn(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("berth dev was ready after %.1f s", s.took.Seconds())
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("end of berth dev: %v", err)
		}
		s.showAfterFailure(t)
	})
	s.checkAtEnd(t)
	return s
}

// close stops the stack as Ctrl-C does, unless the test ended it, and checks what it left.
func (s *stack) close() error {
	s.store.Close()
	if s.ended() {
		return nil
	}
	s.interrupt()
	err := s.endWell()
	if lines := strings.Count(s.output(), "\n"); lines != 1 {
		err = errors.Join(err, fmt.Errorf("%d lines on stdout: %q", lines, s.output()))
	}
	return errors.Join(err, s.nothingLeft())
}

// nothingLeft checks that no process and no temporary file of the stack remains.
func (s *stack) nothingLeft() error {
	err := poll(patience, s.noProcess)
	files, _ := filepath.Glob(filepath.Join(s.dir, "*")) // the pattern is valid
	for _, file := range files {
		err = errors.Join(err, fmt.Errorf("left behind: %s", file))
	}
	return err
}

func (s *stack) noProcess() error {
	if left := leftovers(s.dir); len(left) > 0 {
		return fmt.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	for _, w := range s.Workers {
		if alive(w.PID) {
			return fmt.Errorf("left behind: worker %s, pid %d", w.ID, w.PID)
		}
	}
	return nil
}

// checkAtEnd looks for broken invariants when the test ends. Call it before anything that a cleanup must end first.
func (s *stack) checkAtEnd(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if s.ended() {
			return
		}
		if found := s.violations(t); len(found) > 0 {
			t.Errorf("berth.violations: %s", strings.Join(found, "; "))
		}
	})
}
