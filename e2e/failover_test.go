package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// out is where BenchmarkBrowserFailover writes its figures as JSON; empty: nowhere.
var out = flag.String("out", "", "file for the figures of BenchmarkBrowserFailover")

// failover is the recorded result.
type failover struct {
	What    string    `json:"what"`
	At      time.Time `json:"at"`
	CPUs    int       `json:"cpus"`
	Race    bool      `json:"race_detector"`
	Kills   int       `json:"kills"`
	Seconds []float64 `json:"seconds"` // from each kill to the first frame that the next owner sent
	Median  float64   `json:"median_seconds"`
	Worst   float64   `json:"worst_seconds"`
}

// BenchmarkBrowserFailover measures the seconds from kill -9 of a session's owner until the browser has decoded the first
// frame from the next one, with camera and microphone, of three workers. One iteration is one kill, and each is the first
// that its session sees: a client that loses worker after worker waits longer each time. Between kills all workers come
// back, which takes ten seconds.
func BenchmarkBrowserFailover(b *testing.B) {
	s := newStack(b, "--workers", "3")
	result := failover{
		What: "kill -9 of the owner to the first decoded frame from the next, Chromium, echo",
		At:   time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Race: raceDetector,
	}
	for b.Loop() {
		b.StopTimer()
		s.awaitAllReady(b)
		page := openDemo(b, s, "source=camera&handler=echo")
		before := page.flows(b, 0)
		pid := s.currentPID(b, before.Owner)
		b.StartTimer()

		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		after := page.flows(b, before.Generation)
		took := page.backAfter(b, killed).Seconds()
		b.Logf("kill %d: %s was killed, frames from %s after %.2f s", len(result.Seconds)+1, before.Owner, after.Owner, took)
		result.Seconds = append(result.Seconds, took)
		page.end(b)
	}
	result.summarize()
	b.ReportMetric(result.Median, "s/median")
	b.ReportMetric(result.Worst, "s/worst")
	b.ReportMetric(0, "ns/op") // it would count more than the wait for the first frame
	if err := result.write(*out); err != nil {
		b.Fatal(err)
	}
}

func (f *failover) summarize() {
	sorted := slices.Sorted(slices.Values(f.Seconds))
	f.Kills = len(sorted)
	f.Median = (sorted[(f.Kills-1)/2] + sorted[f.Kills/2]) / 2
	f.Worst = sorted[f.Kills-1]
}

func (f *failover) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// awaitAllReady waits until every worker of the stack takes sessions.
func (s *stack) awaitAllReady(t testing.TB) {
	t.Helper()
	eventually(t, func() error {
		rows, err := s.store.Workers(t.Context())
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.State != berth.WorkerReady {
				return fmt.Errorf("worker %s is %s", row.ID, row.State)
			}
		}
		return nil
	})
}

// currentPID finds the process that runs a worker now: after a kill it is another than the report names.
func (s *stack) currentPID(t testing.TB, workerID string) int {
	t.Helper()
	pids := withSettings("TMPDIR="+s.dir, "BERTH_WORKER_ID="+workerID)
	if len(pids) != 1 {
		t.Fatalf("worker %s has the processes %v", workerID, pids)
	}
	return pids[0]
}
