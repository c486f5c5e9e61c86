package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clusterName marks the servers of this package in their command lines.
const clusterName = "berth-devpg"

// pollInterval is how often a state that announces itself only in a file or in
// /proc is looked at.
const pollInterval = 5 * time.Millisecond

// pidFile is what a postmaster says about itself in postmaster.pid.
type pidFile struct {
	pid     int
	segment int    // System V shared memory id; negative if not written yet
	status  string // starting, ready, standby (ready to read), stopping
}

// readPIDFile returns a pidFile without a pid if there is none, or none yet.
func readPIDFile(data string) (pidFile, error) {
	none := pidFile{segment: -1}
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	lines := strings.Split(string(text), "\n")
	found := none
	if _, err := fmt.Sscan(lines[0], &found.pid); err != nil || found.pid <= 0 {
		return none, nil //nolint:nilerr // the file is being written
	}
	if len(lines) > 7 {
		found.status = strings.TrimSpace(lines[7])
	}
	if len(lines) > 6 {
		found.segment = segmentID(lines[6])
	}
	return found, nil
}

// segmentID reads a line of key and id.
func segmentID(line string) int {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return -1
	}
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return id
}

// isOrphan reports whether pid is a postmaster that this package started on
// data and that has not ended. Pids are reused, so the pid alone proves nothing.
func isOrphan(pid int, data string) bool {
	line := commandLine(pid)
	return strings.Contains(line, " -D "+data+" ") && strings.Contains(line, " cluster_name="+clusterName)
}

// stopOrphan ends the server on data that a dead owner left, if there is one.
// The caller owns the place of data.
func stopOrphan(ctx context.Context, data string) error {
	found, err := readPIDFile(data)
	if err != nil || found.pid == 0 {
		return err
	}
	// Where the system has process descriptors this pins the process before it
	// is examined, so that a successor with the same pid cannot be hit.
	orphan, err := os.FindProcess(found.pid)
	if err != nil {
		return fmt.Errorf("find process %d: %w", found.pid, err)
	}
	defer func() { _ = orphan.Release() }()
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		if !isOrphan(found.pid, data) {
			return nil
		}
		if err := orphan.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop orphaned server %d: %w", found.pid, err)
		}
		if err := awaitGone(ctx, found.pid, data); err != nil {
			return err
		}
	}
	if isOrphan(found.pid, data) {
		return fmt.Errorf("orphaned server %d does not end: stop it by hand", found.pid)
	}
	return nil
}

// awaitGone returns once the orphan has ended or has had its time to.
func awaitGone(ctx context.Context, pid int, data string) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for deadline := time.Now().Add(quitGrace); time.Now().Before(deadline) && isOrphan(pid, data); {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
