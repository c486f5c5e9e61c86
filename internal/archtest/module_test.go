package archtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	oldestGo  = "1.26.0"
	toolchain = "go1.27.3"
)

// goMod is what `go mod edit -json` tells.
type goMod struct {
	Go        string
	Toolchain string
	Require   []struct{ Path, Version string }
	Replace   []any
	Exclude   []any
}

func readGoMod(t *testing.T, dir string) goMod {
	t.Helper()
	out, err := goCommand(dir, "mod", "edit", "-json")
	if err != nil {
		t.Fatal(err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("decode go.mod of %s: %v", dir, err)
	}
	return mod
}

func TestModulesNameTheSameGoAndReplaceNothing(t *testing.T) {
	t.Parallel()
	root := openRepository(t).root
	for _, dir := range []string{root, filepath.Join(root, "tools"), filepath.Join(root, "bench", "centrifuge")} {
		mod := readGoMod(t, dir)
		if mod.Go != oldestGo {
			t.Errorf("%s: go %s, want %s: users of the SDK build with it, and images set to GOTOOLCHAIN=local cannot switch", dir, mod.Go, oldestGo)
		}
		if mod.Toolchain != toolchain {
			t.Errorf("%s: toolchain %s, want %s", dir, mod.Toolchain, toolchain)
		}
		if len(mod.Replace)+len(mod.Exclude) > 0 {
			t.Errorf("%s: replace and exclude do not reach those who import the module, so we never test what they get", dir)
		}
	}
}

// TestToolchainIsRepeatedFaithfully covers the files that cannot read go.mod.
func TestToolchainIsRepeatedFaithfully(t *testing.T) {
	t.Parallel()
	root := openRepository(t).root
	for file, want := range map[string]string{
		"Makefile":          "GOTOOLCHAIN := " + toolchain + "\n",
		"deploy/Dockerfile": "golang:" + strings.TrimPrefix(toolchain, "go") + "-",
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not contain %q", file, want)
		}
	}
}

func TestDependenciesAreNewerThanTheirKnownHoles(t *testing.T) {
	t.Parallel()
	floors := map[string]string{
		"github.com/pion/webrtc/v4":   "v4.2.26",
		"github.com/pion/dtls/v3":     "v3.1.15",
		"github.com/pion/interceptor": "v0.1.39",
		"golang.org/x/net":            "v0.60.0",
	}
	for _, required := range readGoMod(t, openRepository(t).root).Require {
		floor, ok := floors[required.Path]
		if ok && versionLess(required.Version, floor) {
			t.Errorf("%s %s has known holes; need %s or newer", required.Path, required.Version, floor)
		}
	}
}

// versionLess compares release versions; what follows the patch number is ignored.
func versionLess(a, b string) bool {
	var x, y [3]int
	_, _ = fmt.Sscanf(a, "v%d.%d.%d", &x[0], &x[1], &x[2])
	_, _ = fmt.Sscanf(b, "v%d.%d.%d", &y[0], &y[1], &y[2])
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}
