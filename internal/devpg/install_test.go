package devpg

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeInstall is a directory with binaries that only know their version.
func fakeInstall(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMissingBinariesNameTheRemedy(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{
		"empty":   t.TempDir(),
		"missing": "/no/such/directory",
		"too old": fakeInstall(t, "14.11 (Debian 14.11-1)"),
		"silent":  fakeInstall(t, "unknown"),
	} {
		_, err := Start(t.Context(), Config{BinDir: dir})
		if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "make deps") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestVersionsAreRead(t *testing.T) {
	t.Parallel()
	for text, major := range map[string]int{"15.14 (Debian 15.14-0+deb12u1)": 15, "18beta1": 18, "19devel": 19} {
		found, err := inspectInstall(t.Context(), fakeInstall(t, text))
		if err != nil || found.major != major {
			t.Errorf("%s: got %d, %v", text, found.major, err)
		}
	}
}

func TestNewestVersionComesFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"9", "18", "15"} {
		if err := os.MkdirAll(filepath.Join(root, name, "bin"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, dir := range newestFirst(root, "*", "bin") {
		names = append(names, filepath.Base(filepath.Dir(dir)))
	}
	if want := []string{"18", "15", "9"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}
