package archtest

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxLines     = 500
	maxTestLines = 700 // tables of cases are long and flat
)

func TestPackagesHaveAComment(t *testing.T) {
	t.Parallel()
	repo := openRepository(t)
	for _, p := range repo.packages {
		if len(p.GoFiles) == 0 || repo.onlyGenerated(p) {
			continue
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: its package comment must begin with %q and say what the package is for (got %q)", p.path(), want, p.Doc)
		}
	}
}

func (r *repository) onlyGenerated(p goPackage) bool {
	return !slices.ContainsFunc(r.files, func(f sourceFile) bool {
		return path.Dir(f.path) == p.path() && slices.Contains(p.GoFiles, path.Base(f.path)) && !f.generated
	})
}

func TestPackagesAreNamedByWhatTheyHold(t *testing.T) {
	t.Parallel()
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "models", "types", "globals", "shared", "lib", "pkg"}
	for _, p := range openRepository(t).packages {
		if slices.Contains(vague, p.Name) || slices.Contains(vague, path.Base(p.path())) {
			t.Errorf("%s: %q says nothing about its content; anything fits, so everything will be put there", p.path(), p.Name)
		}
	}
}

func TestFilesFitOneReading(t *testing.T) {
	t.Parallel()
	for _, f := range openRepository(t).files {
		if f.generated || path.Ext(f.path) != ".go" {
			continue
		}
		limit := maxLines
		if strings.HasSuffix(f.path, "_test.go") {
			limit = maxTestLines
		}
		if n := len(f.lines()); n > limit {
			t.Errorf("%s has %d lines, more than %d: split it by responsibility", f.path, n, limit)
		}
	}
}

// wording is text that must not appear in a file.
type wording struct {
	pattern *regexp.Regexp
	files   *regexp.Regexp // paths it is about
	except  []string       // paths where it may appear
	because string
}

func wordings() []wording {
	code := regexp.MustCompile(`\.(go|sql|yaml|yml|js|ts|html)$`)
	golang := regexp.MustCompile(`\.go$`)
	sql := regexp.MustCompile(`\.sql$`)
	all := regexp.MustCompile(`.`)
	return []wording{
		{regexp.MustCompile(`(?i)heart-?_?beat`), code, nil, "one word each: a lease is renewed"},
		{regexp.MustCompile(`(?i)\b(jwt|token|session)[ _]?claims\b`), code, nil, "a claim takes a slot; what a token carries is its content"},
		{regexp.MustCompile(`(?i)\boffset\s+(\$\d|[1-9]|@)`), sql, nil, "lists page by cursor: an offset skips and repeats rows; the word is for topics. (offset 0 skips none: it keeps a subquery apart)"},
		{regexp.MustCompile(`(?i)\btimestamp\b(\s+without|\s*[,)])`), sql, nil, "timestamptz everywhere"},
		{regexp.MustCompile(`\btime\.Sleep\(`), golang, nil, "wait for a signal, poll with a deadline or use testing/synctest"},
		{regexp.MustCompile(`\bSetNAT1To1IPs\b`), golang, nil, "SetICEAddressRewriteRules can set a port too"},
		{regexp.MustCompile(`(^|[\s"'(=:])(/wor[k]/|/roo[t]/|/home/\w|/Users/\w)|\.\./shared\b`), all, nil, "the path exists on one machine only"},
		{regexp.MustCompile(`^(<{7}|>{7}) `), all, nil, "a merge was left half done"},
	}
}

func TestFilesUseOurWordsAndNobodysMachine(t *testing.T) {
	t.Parallel()
	for _, f := range openRepository(t).files {
		// the patterns themselves are here
		if f.generated || within(f.path, "internal/archtest") {
			continue
		}
		for _, w := range wordings() {
			if w.files.MatchString(f.path) && !withinAny(f.path, w.except) {
				reportWording(t, f, w)
			}
		}
	}
}

func reportWording(t *testing.T, f sourceFile, w wording) {
	t.Helper()
	for i, line := range f.lines() {
		if match := w.pattern.FindString(line); match != "" {
			t.Errorf("%s:%d: %q: %s", f.path, i+1, strings.TrimSpace(match), w.because)
		}
	}
}

func TestWordingRulesMatchWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	rules := wordings()
	for text, matches := range map[string]bool{
		"func (w *Worker) sendHeartbeat()":         true,
		"type sessionClaims struct":                true,
		"select id from sessions offset $2":        true,
		"created_at timestamp, ":                   true,
		"\ttime.Sl" + "eep(50 * time.Millisecond)": true,
		`dir := "/home/someone/src"`:               true,
		"renewed_at timestamptz not null":          false,
		"claim a slot with the session's token":    false,
		"the subscriber resumes at offset 12":      true, // in SQL only: see its files column
		"GET https://example.com/wor" + "k/hours":  false,
		"COPY --from=build /out/berth /bin/berth":  false,
	} {
		got := slices.ContainsFunc(rules, func(w wording) bool { return w.pattern.MatchString(text) })
		if got != matches {
			t.Errorf("%q matches a rule: %v, want %v", text, got, matches)
		}
	}
}
