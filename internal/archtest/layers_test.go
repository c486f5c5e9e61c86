package archtest

import (
	"fmt"
	"path"
	"slices"
	"testing"
)

// layer says what the packages at and below a path may import from this module. Packages of one layer may import each
// other. A layer whose path does not exist yet is fine.
type layer struct {
	path    string
	imports []string // nil: nothing, anything: everything
	because string
}

const anything = "*"

// support is what every part may use: it knows nothing about any of them.
func support(more ...string) []string {
	return append([]string{"internal/berth", "internal/telemetry"}, more...)
}

func layers() []layer {
	return []layer{
		{".", nil, "the root only embeds openapi.yaml, which must lie there"},
		{"internal/berth", nil, "the domain knows no technology and nobody above it"},
		{"internal/telemetry", []string{"internal/berth"}, "logs and metrics are used by all, so they use only the domain"},
		{"internal/openfile", nil, "a limit of the process, of which it knows nothing else"},
		{"internal/address", nil, "which client a request counts for is asked by every listener"},
		{"internal/config", []string{"internal/berth"}, "settings are values; cmd hands them to whom they concern"},
		{"internal/auth", support(), "keys and tokens are verified by workers too, so they depend on no server"},
		{"internal/backplane", support(), "topics carry anybody's messages and know none of their senders"},
		{"internal/postgres", support("internal/auth", "migrations"), "a store knows the records it keeps and is a stranger to those who call it: they declare the interfaces"},
		{"internal/devpg", support("migrations"), "a private Postgres serves any process"},
		{"migrations", support(), "the schema comes before everybody who uses it"},
		{"media", support(), "media works without signaling: WHIP, tests and your own transport use it alone"},
		{"signaling", support("internal/address", "internal/auth", "internal/backplane"), "the hub moves frames; the worker joins them to media"},
		{"worker", support("internal/auth", "internal/backplane", "signaling", "media"), "api, worker and jobs meet only in the database"},
		{"api", support("internal/address", "internal/auth", "internal/backplane", "."), "api, worker and jobs meet only in the database"},
		{"jobs", support("internal/auth", "internal/backplane"), "api, worker and jobs meet only in the database"},
		{"web", support(), "pages are files and handlers that cmd mounts"},
		{"sdk/go", nil, "users compile it: importing our internals would publish them and pull in a server"},
		{"internal/testkit", []string{anything}, "test support joins parts as cmd does"},
		{"internal/archtest", nil, "it reads the others as text"},
		{"bench", []string{"internal", "migrations", "media", "sdk/go"}, "harnesses drive the real binary from outside; cmd runs them"},
		{"deploy", []string{"internal/config"}, "its tests compare the files with the settings"},
		{"e2e", []string{anything}, "end-to-end tests may look everywhere"},
		{"cmd", []string{anything}, "one binary, where everything is wired"},
	}
}

// layerViolations compares the module's packages with the layers.
func layerViolations(layers []layer, packages []goPackage) []string {
	var violations []string
	for _, p := range packages {
		own := slices.IndexFunc(layers, func(l layer) bool { return within(p.path(), l.path) })
		if own < 0 {
			violations = append(violations, fmt.Sprintf("package %s belongs to no layer: add a row that says what it may import, and why", p.path()))
			continue
		}
		for _, imported := range p.Imports {
			target, ours := pathInModule(imported)
			if !ours || within(target, layers[own].path) || slices.Contains(layers[own].imports, anything) || withinAny(target, layers[own].imports) {
				continue
			}
			violations = append(violations, fmt.Sprintf("%s imports %s, but %s: %s", p.path(), target, layers[own].path, layers[own].because))
		}
	}
	return violations
}

func TestPackagesImportOnlyWhatLiesBelowThem(t *testing.T) {
	t.Parallel()
	for _, violation := range layerViolations(layers(), openRepository(t).packages) {
		t.Error(violation)
	}
}

func TestLayersHaveReasonsAndNoDoubles(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, l := range layers() {
		if l.because == "" || seen[l.path] {
			t.Errorf("layer %s needs one row with a reason", l.path)
		}
		seen[l.path] = true
	}
}

func TestLayerRuleCatchesAViolation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, imported string
		violated       bool
	}{
		"api must not know the worker":      {"api", "worker", true},
		"jobs must not know the api":        {"jobs", "api/problem", true},
		"worker must not know the jobs":     {"worker", "jobs", true},
		"domain must not know the store":    {"internal/berth", "internal/postgres", true},
		"sdk must not know the domain":      {"sdk/go", "internal/berth", true},
		"a package without a row is one":    {"internal/util", "internal/berth", true},
		"worker assembles signaling":        {"worker", "signaling", false},
		"a layer may import its own parts":  {"api", "api/openapi", false},
		"the root holds one file":           {".", "internal/berth", true},
		"only the api serves that file":     {"worker", ".", true},
		"a common prefix is not being part": {"apix", "internal/berth", true},
		"cmd wires everything":              {"cmd/berth", "jobs", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packages := []goPackage{{ImportPath: path.Join(modulePath, tc.from), Imports: []string{"fmt", path.Join(modulePath, tc.imported)}}}
			if got := layerViolations(layers(), packages); (len(got) > 0) != tc.violated {
				t.Errorf("%s imports %s: violations %q", tc.from, tc.imported, got)
			}
		})
	}
}
