package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// confinement says which packages may import a library, named by the beginning of its import path.
type confinement struct {
	library string
	homes   []string
	because string
}

func confinements() []confinement {
	return []confinement{
		{"github.com/jackc/pgx", []string{"internal/postgres", "internal/backplane", "internal/devpg", "internal/testkit", "migrations", "jobs", "bench"}, "rows and SQL stop at the store, so the rest can be tested and read without it"},
		{"github.com/riverqueue/river", []string{"jobs", "migrations"}, "jobs are rows for everybody else"},
		{"github.com/redis/go-redis", []string{"bench"}, "Redis is what Berth is compared with; Postgres is the one stateful dependency"},
		{"github.com/pressly/goose", []string{"migrations"}, "only migrations migrate"},
		{"github.com/pion", []string{"media", "sdk/go", "bench"}, "WebRTC has one server side and one client side"},
		{"github.com/go-chi/chi", []string{"api", "web", "worker", "bench"}, "routing belongs to those who mount routes"},
		{"github.com/coder/websocket", []string{"signaling", "api", "sdk/go", "bench", "worker"}, "sockets belong to the hub, the proxy and the client"},
		{"github.com/golang-jwt/jwt", []string{"internal/auth"}, "one place decides what a valid token is"},
		{"github.com/kelseyhightower/envconfig", []string{"internal/config"}, "the environment is read once, strictly"},
		{"github.com/spf13/cobra", []string{"cmd"}, "flags are the command's business"},
		{"github.com/lmittmann/tint", []string{"internal/telemetry"}, "log handlers are chosen in one place"},
		{"github.com/getkin/kin-openapi", []string{"internal/testkit"}, "specification checks run in tests, not on the hot path: its errors echo input"},
		{"github.com/chromedp", []string{"internal/testkit", "bench"}, "browsers are test tools"},
		{"pgregory.net/rapid", []string{"internal/testkit"}, "generators are test tools"},
		{"testing", []string{"internal/testkit", "internal/archtest"}, "package testing adds flags to a binary"},
		{modulePath + "/internal/testkit", []string{"internal/testkit", "e2e"}, "test support does not ship"},
		{"plugin", nil, "one static binary"},
		{"unsafe", nil, "nothing here needs it"},
	}
}

// confinementViolations compares what packages import with the homes of libraries. internal/berth, the domain, may
// import the standard library only, whatever the table says.
func confinementViolations(rules []confinement, packages []goPackage) []string {
	var violations []string
	for _, p := range packages {
		for _, imported := range p.Imports {
			if within(p.path(), "internal/berth") && !isStandard(imported) && !strings.HasPrefix(imported, modulePath) {
				violations = append(violations, fmt.Sprintf("%s imports %s: the domain uses the standard library only", p.path(), imported))
			}
			i := slices.IndexFunc(rules, func(c confinement) bool { return within(imported, c.library) })
			if i >= 0 && !withinAny(p.path(), rules[i].homes) {
				violations = append(violations, fmt.Sprintf("%s imports %s, whose homes are %v: %s", p.path(), imported, rules[i].homes, rules[i].because))
			}
		}
	}
	return violations
}

// isStandard follows the go command: the first element of any other path has a dot.
func isStandard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func TestLibrariesStayAtHome(t *testing.T) {
	t.Parallel()
	for _, violation := range confinementViolations(confinements(), openRepository(t).packages) {
		t.Error(violation)
	}
}

func TestConfinementRuleCatchesAViolation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, imported string
		violated       bool
	}{
		"pgx outside the store":            {"api", "github.com/jackc/pgx/v5/pgxpool", true},
		"pgx in the store":                 {"internal/postgres", "github.com/jackc/pgx/v5/pgxpool", false},
		"River outside jobs":               {"worker", "github.com/riverqueue/river/rivertype", true},
		"Pion in signaling":                {"signaling", "github.com/pion/webrtc/v4", true},
		"Pion in the client":               {"sdk/go", "github.com/pion/webrtc/v4", false},
		"a library in the domain":          {"internal/berth", "golang.org/x/sync/errgroup", true},
		"the standard library anywhere":    {"internal/berth", "net/url", false},
		"testing in what ships":            {"worker", "testing", true},
		"test support in what ships":       {"api", modulePath + "/internal/testkit", true},
		"a library without a row, outside": {"api", "golang.org/x/time/rate", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packages := []goPackage{{ImportPath: modulePath + "/" + tc.from, Imports: []string{tc.imported}}}
			if got := confinementViolations(confinements(), packages); (len(got) > 0) != tc.violated {
				t.Errorf("%s imports %s: violations %q", tc.from, tc.imported, got)
			}
		})
	}
}
