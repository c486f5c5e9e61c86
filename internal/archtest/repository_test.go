package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/berthdev/berth"

// goPackage is what `go list` tells about one package of the module.
type goPackage struct {
	ImportPath string
	Name       string
	Doc        string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// path is the import path within the module: "internal/berth", or "." for the root.
func (p goPackage) path() string {
	path, _ := pathInModule(p.ImportPath)
	return path
}

// pathInModule tells whether a package is one of this module, and its path there.
func pathInModule(importPath string) (string, bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// repository is read once: every test looks at the same packages and files.
type repository struct {
	root     string
	packages []goPackage
	files    []sourceFile
}

// sourceFile is a text file of the repository, hand-written or not.
type sourceFile struct {
	path      string // from the root, with slashes
	text      string
	generated bool
}

func (f sourceFile) lines() []string { return strings.Split(strings.TrimSuffix(f.text, "\n"), "\n") }

var readRepository = sync.OnceValues(func() (*repository, error) {
	gomod, err := goCommand(".", "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	root := filepath.Dir(strings.TrimSpace(string(gomod)))
	packages, err := listPackages(root)
	if err != nil {
		return nil, err
	}
	files, err := readFiles(root)
	return &repository{root: root, packages: packages, files: files}, err
})

func openRepository(t *testing.T) *repository {
	t.Helper()
	repo, err := readRepository()
	if err != nil {
		t.Fatalf("read the repository: %v", err)
	}
	return repo
}

func goCommand(dir string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}

func listPackages(root string) ([]goPackage, error) {
	out, err := goCommand(root, "list", "-e", "-json=ImportPath,Name,Doc,Dir,GoFiles,Imports", "./...")
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode go list: %w", err)
		}
		if !slices.ContainsFunc(ignored(root), func(dir string) bool { return within(p.Dir, dir) }) {
			packages = append(packages, p)
		}
	}
}

// isText tells whether a file's words are checked; other files are data.
func isText(name string) bool {
	switch filepath.Ext(name) {
	case ".go", ".sql", ".md", ".yaml", ".yml", ".sh", ".js", ".ts", ".css", ".html", ".mod", ".json", ".conf", ".tpl":
		return true
	}
	return name == "Makefile" || name == "Dockerfile" || strings.HasSuffix(name, ".ci/run")
}

func readFiles(root string) ([]sourceFile, error) {
	var files []sourceFile
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipIgnored(root, path)
		}
		relative, err := filepath.Rel(root, path)
		if err != nil || !entry.Type().IsRegular() || !isText(filepath.ToSlash(relative)) && !isText(entry.Name()) {
			return err
		}
		text, err := os.ReadFile(path)
		files = append(files, sourceFile{
			path: filepath.ToSlash(relative), text: string(text), generated: isGenerated(string(text)),
		})
		return err
	})
	return files, err
}

// skipIgnored leaves out directories that are not part of the repository, see .gitignore.
func skipIgnored(root, dir string) error {
	if filepath.Base(dir) == "node_modules" || slices.Contains(ignored(root), dir) {
		return filepath.SkipDir
	}
	return nil
}

func ignored(root string) []string {
	return []string{filepath.Join(root, ".git"), filepath.Join(root, "bin"), filepath.Join(root, "tmp")}
}

// isGenerated looks for the standard marker (go help generate), in any comment syntax, in the first lines.
func isGenerated(text string) bool {
	head := text[:min(len(text), 1024)]
	return strings.Contains(head, "Code generated ") && strings.Contains(head, "DO NOT EDIT")
}

// within tells whether path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func withinAny(path string, dirs []string) bool {
	for _, dir := range dirs {
		if within(path, dir) {
			return true
		}
	}
	return false
}
