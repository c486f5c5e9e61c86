package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const scratchPrefix = "berth-pg-"

// maxSocketPath is what every Unix can bind: sun_path holds 104 bytes with the
// final NUL on BSD and macOS, 108 on Linux.
const maxSocketPath = 103

// unlockedGrace is the age from which a scratch directory without a lock file
// counts as left behind, not as one that is being made.
const unlockedGrace = time.Minute

// makeScratch makes and owns a scratch directory in the first usable one of
// the roots.
func makeScratch(root string, who account) (*place, error) {
	roots := []string{root}
	if root == "" {
		roots = []string{os.TempDir(), "/tmp", "/var/tmp"}
	}
	var problems []error
	for _, root := range roots {
		made, err := makeScratchIn(root, who)
		if err == nil {
			return made, nil
		}
		problems = append(problems, err)
	}
	return nil, fmt.Errorf("no directory for a Unix socket: set TMPDIR to a short path that the server's user may enter: %w",
		errors.Join(problems...))
}

func makeScratchIn(root string, who account) (*place, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := who.reaches(root); err != nil {
		return nil, err
	}
	if strings.ContainsAny(root, `,"'`) {
		return nil, fmt.Errorf("%s: PostgreSQL cannot have a comma or quote in a socket path", root)
	}
	path, err := os.MkdirTemp(root, scratchPrefix)
	if err != nil {
		return nil, err
	}
	made, err := furnishScratch(path, who)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return made, nil
}

func furnishScratch(path string, who account) (*place, error) {
	made := &place{path: path}
	if n := len(filepath.Join(made.run(), ".s.PGSQL.65535")); n > maxSocketPath {
		return nil, fmt.Errorf("%s: socket path of %d bytes is over %d", path, n, maxSocketPath)
	}
	if err := os.Chmod(path, who.outerMode()); err != nil {
		return nil, err
	}
	made, err := claimPlace(path)
	if err != nil {
		return nil, err
	}
	if err := who.mkdir(made.run()); err != nil {
		return nil, errors.Join(err, made.close())
	}
	return made, nil
}

// sweep removes the scratch directories beside mine whose owners are gone, and
// stops the servers that still run on them. Failing to is logged, not returned:
// it must not keep a new server from starting.
func sweep(ctx context.Context, mine *place, logger *slog.Logger) {
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(mine.path), scratchPrefix+"*"))
	if err != nil {
		logger.WarnContext(ctx, "stale database directories not listed", "err", err)
	}
	for _, path := range paths {
		if path == mine.path || ctx.Err() != nil {
			continue
		}
		removed, err := sweepOne(ctx, path)
		switch {
		case err != nil:
			logger.WarnContext(ctx, "stale database directory not removed", "path", path, "err", err)
		case removed:
			logger.InfoContext(ctx, "stale database directory removed", "path", path)
		}
	}
}

// sweepOne removes path if it is ours and has no owner.
func sweepOne(ctx context.Context, path string) (removed bool, err error) {
	if !abandoned(path) {
		return false, nil
	}
	stale, err := claimPlace(path)
	if errors.Is(err, errOwned) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := stopOrphan(ctx, stale.data()); err != nil {
		return false, errors.Join(err, stale.close())
	}
	return true, stale.remove()
}

// abandoned reports whether path may be tried: a real directory of this user,
// with a lock file or old enough not to be in the making. Temporary directories
// are shared, so names prove nothing.
func abandoned(path string) bool {
	dir, err := os.Lstat(path)
	if err != nil || !dir.IsDir() || !ours(dir) {
		return false
	}
	lock, err := os.Lstat(filepath.Join(path, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Since(dir.ModTime()) > unlockedGrace
	}
	return err == nil && lock.Mode().IsRegular() && ours(lock)
}

func ours(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
