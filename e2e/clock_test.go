package e2e

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// clockVar names the file with the offset of a process's wall clock, a duration such as "2m0s" or "-2m0s". It may be changed
// while the process runs.
const clockVar = "BERTH_TEST_CLOCK_OFFSET"

// offsetSource is the file that joins package time in a binary whose clock can be set.
//
//go:embed testdata/offset.go.txt
var offsetSource []byte

// shifted says whether a process with this environment needs a binary whose clock can be set.
func shifted(environment []string) bool {
	return slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, clockVar+"=") })
}

// newShiftedBinary returns a function whose first call builds a binary whose wall clock can be set, for Berth and for every
// library in it. Preloaded libraries do not reach a Go program's clock, so the standard library is built with another one,
// which takes minutes the first time.
func newShiftedBinary(dir string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		root, overlay, err := overlayClock(filepath.Join(dir, "clock"))
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "berth-clock")
		args := []string{"build", "-trimpath", "-overlay", overlay, "-tags", "clockoffset", "-o", path}
		if raceDetector {
			args = append(args, "-race")
		}
		build := exec.Command(filepath.Join(root, "bin", "go"), append(args, "../cmd/berth")...)
		build.Env = append(os.Environ(), "GOROOT="+root, "GOTOOLCHAIN=local")
		if output, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build the binary with another clock: %w\n%s", err, output)
		}
		return path, nil
	})
}

// overlayClock says where the Go installation is to be found, and which file tells the build of the files that differ from
// it. A toolchain that Go downloaded may not be overlaid where it lies, so it gets another name.
func overlayClock(dir string) (root, overlay string, err error) {
	output, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", "", err
	}
	root, overlay = filepath.Join(dir, "go"), filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(strings.TrimSpace(string(output)), root)); err != nil {
		return "", "", err
	}
	original := filepath.Join(root, "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", "", err
	}
	const place = "func Now() Time {\n\tsec, nsec, mono := "
	patched := strings.Replace(string(source), place+"runtimeNow()", place+"offsetNow()", 1)
	if patched == string(source) {
		return "", "", fmt.Errorf("%s is not as expected: see Now there, and testdata/offset.go.txt here", original)
	}
	replace := map[string]string{original: filepath.Join(dir, "time.go"), filepath.Join(root, "src", "time", "offset.go"): filepath.Join(dir, "offset.go")}
	plan, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", "", err
	}
	return root, overlay, errors.Join(
		os.WriteFile(filepath.Join(dir, "time.go"), []byte(patched), 0o644),
		os.WriteFile(filepath.Join(dir, "offset.go"), offsetSource, 0o644),
		os.WriteFile(overlay, plan, 0o644))
}
