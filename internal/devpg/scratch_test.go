package devpg

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// me is the account of a server that this process runs as itself.
func me() account { return account{uid: os.Geteuid(), gid: os.Getegid()} }

func scratchIn(t *testing.T, root string) *place {
	t.Helper()
	made, err := makeScratch(root, me())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.remove(); err != nil {
			t.Error(err)
		}
	})
	return made
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestSweepRemovesOnlyWhatIsAbandoned(t *testing.T) {
	t.Parallel()
	long := -2 * unlockedGrace
	for name, test := range map[string]struct {
		lockFile bool
		age      time.Duration
		removed  bool
	}{
		"with a free lock":        {lockFile: true, removed: true},
		"in the making":           {removed: false},
		"never locked, old":       {age: long, removed: true},
		"with a free lock, older": {lockFile: true, age: long, removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tempRoot(t)
			path := filepath.Join(root, scratchPrefix+"x")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if test.lockFile {
				if err := os.WriteFile(filepath.Join(path, lockName), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			at := time.Now().Add(test.age)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
			sweep(t.Context(), scratchIn(t, root), slog.New(slog.DiscardHandler))
			if gone := !exists(t, path); gone != test.removed {
				t.Errorf("removed: %v, want %v", gone, test.removed)
			}
		})
	}
}

func TestSweepSparesAnOwnedDirectory(t *testing.T) {
	t.Parallel()
	root := tempRoot(t)
	first, second := scratchIn(t, root), scratchIn(t, root)
	sweep(t.Context(), first, slog.New(slog.DiscardHandler))
	if !exists(t, second.run()) {
		t.Error("an owned directory was removed")
	}
}

func TestSweepFollowsNoLink(t *testing.T) {
	t.Parallel()
	root, precious := tempRoot(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, filepath.Join(root, scratchPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	sweep(t.Context(), scratchIn(t, root), slog.New(slog.DiscardHandler))
	if !exists(t, filepath.Join(precious, lockName)) {
		t.Error("the target of a link was touched")
	}
}

func TestLockFileThatASweeperRemovedIsWorthless(t *testing.T) {
	t.Parallel()
	late, err := claimPlace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(late.lock.Name()); err != nil {
		t.Fatal(err)
	}
	if err := late.sign(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := late.close(); err != nil {
		t.Error(err)
	}
}

func TestScratchRefusesWhatASocketCannotBe(t *testing.T) {
	t.Parallel()
	base := tempRoot(t)
	for reason, name := range map[string]string{
		"socket path": strings.Repeat("long", 25),
		"comma":       "a,b",
	} {
		root := filepath.Join(base, name)
		if err := os.Mkdir(root, 0o711); err != nil {
			t.Fatal(err)
		}
		if _, err := makeScratch(root, me()); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v", reason, err)
		}
		if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", reason, left, err)
		}
	}
}

func TestClosedParentIsNamed(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(tempRoot(t), "closed")
	inside := filepath.Join(closed, "inside")
	if err := os.MkdirAll(inside, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := account{uid: 54321, gid: 54321, dropped: true}
	if err := stranger.reaches(inside); err == nil || !strings.Contains(err.Error(), closed+" (mode 0700)") {
		t.Errorf("got %v", err)
	}
}
