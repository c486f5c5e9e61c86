package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// binaryVar names a binary to test in place of one that is built for the run.
const binaryVar = "BERTH_TEST_BINARY"

// newBinary returns a function whose first call builds the binary.
func newBinary(dir string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		if given := os.Getenv(binaryVar); given != "" {
			return exec.LookPath(given)
		}
		path := filepath.Join(dir, "berth")
		args := []string{"build", "-o", path}
		if raceDetector {
			args = append(args, "-race")
		}
		output, err := exec.Command("go", append(args, "../cmd/berth")...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build the binary: %w\n%s", err, output)
		}
		return path, nil
	})
}
