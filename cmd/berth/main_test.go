package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// asBerth in the environment makes the test binary be berth, so that tests run the command that they were built with, race
// detector included.
const asBerth = "RUN_AS_BERTH"

// commandLimit bounds one command. It is long because the race detector and a busy machine are slow.
const commandLimit = time.Minute

var databases = testkit.NewPostgres(migrations.Up, testkit.PostgresConfig{})

func TestMain(m *testing.M) {
	if os.Getenv(asBerth) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(testkit.Main(m, testkit.MainConfig{Postgres: databases}))
}

// shell is the settings that commands find in the environment.
type shell []string

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// berth runs a command to its end.
func (s shell) berth(t *testing.T, args ...string) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
	defer cancel()
	command := exec.CommandContext(ctx, self, args...)
	command.Env = append(append(foreignEnvironment(), asBerth+"=1"), s...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("berth %s: %v, %v: %s", strings.Join(args, " "), err, ctx.Err(), &stderr)
	}
	if strings.Contains(stderr.String(), "goroutine ") || strings.Contains(stderr.String(), "DATA RACE") {
		t.Errorf("berth %s: %s", strings.Join(args, " "), &stderr)
	}
	return result{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// foreignEnvironment is what this process has without settings of Berth.
func foreignEnvironment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "BERTH_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// prints runs a command that must succeed without a word on stderr, and returns what it prints.
func (s shell) prints(t *testing.T, args ...string) string {
	t.Helper()
	r := s.berth(t, args...)
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("berth %s: exit code %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// refuses runs a command that must fail with an exit code, print nothing, and say something in one line of its own.
func (s shell) refuses(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	r := s.berth(t, args...)
	if r.code != code || r.stdout != "" || !strings.Contains(r.stderr, says) || !strings.HasPrefix(r.stderr, "berth: ") {
		t.Errorf("berth %s: exit code %d, prints %q, says %q; want code %d and %q",
			strings.Join(args, " "), r.code, r.stdout, r.stderr, code, says)
	}
}

// table reads a printed table: the words of each row by the words of its first line.
func table(t *testing.T, text string) []map[string]string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	header := columns(lines[0])
	rows := make([]map[string]string, 0, len(lines)-1)
	for _, line := range lines[1:] {
		cells, row := columns(line), map[string]string{}
		if len(cells) != len(header) {
			t.Fatalf("row %q under %q", line, lines[0])
		}
		for i, name := range header {
			row[name] = cells[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// columns splits a line where at least two spaces are.
func columns(line string) []string {
	var cells []string
	for cell := range strings.SplitSeq(line, "  ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			cells = append(cells, cell)
		}
	}
	return cells
}
