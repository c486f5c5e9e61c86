package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// minMajor is the oldest PostgreSQL that Berth supports.
const minMajor = 15

// ErrNotInstalled means that no usable PostgreSQL server was found. The message
// it is wrapped in says where was looked and what to do.
var ErrNotInstalled = errors.New("PostgreSQL server binaries not found")

// install is a directory with server binaries of one version.
type install struct {
	bin   string
	major int
}

func (i install) postgres() string { return filepath.Join(i.bin, "postgres") }
func (i install) initdb() string   { return filepath.Join(i.bin, "initdb") }

// findInstall returns the installation in dir, or with an empty dir the first
// usable one on this machine.
func findInstall(ctx context.Context, dir string) (install, error) {
	candidates := []string{dir}
	if dir == "" {
		candidates = installDirs(ctx)
	}
	var problems []error
	for _, bin := range candidates {
		found, err := inspectInstall(ctx, bin)
		if err == nil {
			return found, nil
		}
		problems = append(problems, err)
	}
	remedy := "run `make deps`, or name the directory of initdb and postgres in BERTH_PG_BIN"
	if dir != "" {
		remedy = "correct BERTH_PG_BIN, or unset it and run `make deps`"
	}
	if len(problems) == 0 {
		return install{}, fmt.Errorf("%w: %s", ErrNotInstalled, remedy)
	}
	return install{}, fmt.Errorf("%w: %s (%w)", ErrNotInstalled, remedy, errors.Join(problems...))
}

// installDirs lists directories that may hold server binaries, the most
// specific first. pg_config alone proves nothing: client packages ship it too.
func installDirs(ctx context.Context) []string {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	dirs = append(dirs, newestFirst("/usr/lib/postgresql", "*", "bin")...)
	dirs = append(dirs, newestFirst("/usr", "pgsql-*", "bin")...)
	dirs = append(dirs, newestFirst("/opt/homebrew/opt", "postgresql@*", "bin")...)
	dirs = append(dirs, newestFirst("/usr/local/opt", "postgresql@*", "bin")...)
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	dirs = append(dirs, "/opt/homebrew/bin", "/usr/local/bin", "/usr/local/pgsql/bin")
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool {
		return !isExecutable(filepath.Join(dir, "postgres"))
	})
}

var digits = regexp.MustCompile(`\d+`)

// newestFirst lists root/versioned/bin, where versioned is a pattern whose
// matches have the version as their first number.
func newestFirst(root, versioned, bin string) []string {
	dirs, _ := filepath.Glob(filepath.Join(root, versioned, bin)) // fails on bad patterns only
	version := func(dir string) int {
		n, _ := strconv.Atoi(digits.FindString(filepath.Base(filepath.Dir(dir))))
		return n
	}
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	return dirs
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspectInstall checks that bin holds what is needed, new enough.
func inspectInstall(ctx context.Context, bin string) (install, error) {
	found := install{bin: bin}
	for _, path := range []string{found.postgres(), found.initdb()} {
		if !isExecutable(path) {
			return install{}, fmt.Errorf("%s is missing or not executable", path)
		}
	}
	out, err := exec.CommandContext(ctx, found.postgres(), "--version").Output()
	if err != nil {
		return install{}, fmt.Errorf("%s --version: %w", found.postgres(), err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return install{}, fmt.Errorf("%s --version: no version in %q", found.postgres(), out)
	}
	found.major, _ = strconv.Atoi(string(match[1])) // the pattern admits digits only
	if found.major < minMajor {
		return install{}, fmt.Errorf("%s is version %d: need %d or newer", found.postgres(), found.major, minMajor)
	}
	return found, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
