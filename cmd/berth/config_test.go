package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestConfigPrintShowsWhatHoldsAndHidesSecrets(t *testing.T) {
	t.Parallel()
	sh := shell{
		"BERTH_DATABASE_URL=postgres://someone:hidden-word@127.0.0.1:1/berth", "BERTH_LISTEN=127.0.0.1:9999",
		"BERTH_TURN_URLS=turn:turn.example.com", "BERTH_TURN_SECRETS=hidden-word-two",
		"BERTH_SIGNALING_LISTEN=127.0.0.1:0", "BERTH_CONTROL_LISTEN=127.0.0.1:0", // on one address, so that URLs follow
	}
	if said := sh.prints(t, "config", "check"); said != "ok\n" {
		t.Errorf("check says %q", said)
	}
	printed := sh.prints(t, "config", "print")
	if !strings.Contains(printed, "127.0.0.1:9999") || strings.Contains(printed, "hidden-word") {
		t.Errorf("print: %s", printed)
	}
	text := sh.prints(t, "config", "print", "-o", "json")
	var settings []map[string]any
	if err := json.Unmarshal([]byte(text), &settings); err != nil || len(settings) < 10 || strings.Contains(text, "hidden-word") {
		t.Errorf("%v: %s", err, text)
	}
	for _, process := range []string{"api", "worker", "migrate", "tool", "dev"} {
		sh.prints(t, "config", "check", "--process", process)
	}
	sh.refuses(t, 2, "--process", "config", "check", "--process", "cook")
	sh.refuses(t, 2, "--output", "config", "print", "-o", "yaml")
}

func TestEveryProcessNamesTheVariableThatIsWrong(t *testing.T) {
	t.Parallel()
	database := "BERTH_DATABASE_URL=postgres://someone:hidden-word@127.0.0.1:1/berth"
	for _, c := range []struct {
		variable, value string
		args            []string
	}{
		{"BERTH_WORKER_SLOTS", "-1", []string{"worker"}},
		{"BERTH_LEASE", "6", []string{"worker"}},
		{"BERTH_LEASE", "6", []string{"api"}},
		{"BERTH_LISTEN", "", []string{"api"}},
		{"BERTH_LISTNE", "127.0.0.1:1", []string{"api"}},
		{"BERTH_LOG_LEVEL", "loud", []string{"migrate", "up"}},
		{"BERTH_BACKPLANE_URLS", "postgres://u:hidden-word@h/d,nonsense", []string{"api"}},
		{"BERTH_BACKPLANE_URLS", "postgres://u:hidden-word@h/d,postgres://u:hidden-word@h/d", []string{"worker"}},
		{"BERTH_BACKPLANE_URLS", "postgres://u:hidden-word@h/d,", []string{"migrate", "up"}},
		{"BERTH_LOG_LEVEL", "loud", []string{"dev"}},
		{"BERTH_API_URL", "localhost", []string{"session", "list"}},
		{"BERTH_TURN_SECRETS_FILE", "/nowhere/secret", []string{"api"}},
	} {
		r := shell{database, c.variable + "=" + c.value}.berth(t, c.args...)
		if r.code != 2 || !strings.Contains(r.stderr, c.variable) || strings.Contains(r.stderr, "hidden-word") || r.stdout != "" {
			t.Errorf("%s=%q: berth %v: exit code %d: %s%s", c.variable, c.value, c.args, r.code, r.stdout, r.stderr)
		}
	}
}

func TestWrongCommandLinesExitWithTwo(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		`unknown command "sail"`:               {"sail"},
		`unknown command "extra" for "berth a`: {"api", "extra"},
		`unknown command "extra" for "berth d`: {"dev", "extra"},
		`unknown command "up"`:                 {"tenant", "up"},
		`unknown flag: --fast`:                 {"dev", "--fast"},
		`unknown shorthand flag: 'x'`:          {"-x"},
	} {
		shell{}.refuses(t, 2, says, args...)
	}
	for _, args := range [][]string{{}, {"--help"}, {"tenant"}, {"help", "dev"}} {
		if help := (shell{}).prints(t, args...); !strings.Contains(help, "Usage:") {
			t.Errorf("berth %v: %s", args, help)
		}
	}
	if said := (shell{}).prints(t, "--version"); said != "berth version "+version+"\n" {
		t.Errorf("version: %q", said)
	}
}
