package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/config"
)

// TestUnitsWaitForADrain: a unit that kills before the drain is over cuts everybody off.
func TestUnitsWaitForADrain(t *testing.T) {
	t.Parallel()
	drain, err := time.ParseDuration(defaultOf(t, "BERTH_DRAIN_DEADLINE"))
	if err != nil {
		t.Fatal(err)
	}
	shutdown, err := time.ParseDuration(defaultOf(t, "BERTH_SHUTDOWN_TIMEOUT"))
	if err != nil {
		t.Fatal(err)
	}
	for unit, atLeast := range map[string]time.Duration{
		"berth-worker.service": drain + 20*time.Second, // cmd/berth gives it that for goodbyes
		"berth-api.service":    shutdown,
	} {
		if got := time.Duration(settingOf(t, unit, "TimeoutStopSec")) * time.Second; got <= atLeast {
			t.Errorf("%s is killed after %v, and may take %v", unit, got, atLeast)
		}
	}
}

// TestOpenFilesFitTheKernel: systemd does not start a unit whose limit is above the kernel's.
func TestOpenFilesFitTheKernel(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("sysctl.d/60-berth.conf")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^fs\.nr_open = (\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("fs.nr_open is not set")
	}
	most, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"berth-worker.service", "berth-api.service"} {
		if limit := settingOf(t, unit, "LimitNOFILE"); limit > most || limit < 10_000 {
			t.Errorf("%s asks for %d open files of %d", unit, limit, most)
		}
	}
}

// TestVariablesInDeployedFilesExist: comments name settings too, and must not lie.
func TestVariablesInDeployedFilesExist(t *testing.T) {
	t.Parallel()
	known := config.Markdown()
	files, err := filepath.Glob("s*/*")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`BERTH_[A-Z_]+[A-Z]`).FindAllString(string(text), -1) {
			if name != "BERTH_" && !strings.HasSuffix(name, "_FILE") && !strings.Contains(known, "\n## "+name+"\n") {
				t.Errorf("%s names %s, which no process knows", file, name)
			}
		}
	}
}

// settingOf is a number in a unit.
func settingOf(t *testing.T, unit, key string) int {
	t.Helper()
	text, err := os.ReadFile("systemd/" + unit)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + key + `=(\d+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no %s", unit, key)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// defaultOf is the default of a variable, as the page has it.
func defaultOf(t *testing.T, name string) string {
	t.Helper()
	_, section, _ := strings.Cut(config.Markdown(), "\n## "+name+"\n")
	found := regexp.MustCompile("- default: `([^`]+)`").FindStringSubmatch(section)
	if found == nil {
		t.Fatalf("no default of %s", name)
	}
	return found[1]
}
