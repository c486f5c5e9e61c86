package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

// operations of the service with everything mounted, as "METHOD /path".
func routed(t *testing.T) []string {
	t.Helper()
	server, err := New(dependencies(t, newStore()), Config{Dev: true, Demo: &Demo{TenantID: "dev", Killer: killer(nil)}, Web: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	err = chi.Walk(server.service.routes(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		found = append(found, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestRoutesAndDocumentAreTheSame(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	routes := routed(t)
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	for _, operation := range documented {
		if !slices.Contains(routes, operation) {
			t.Errorf("openapi.yaml has %s, which is not routed", operation)
		}
	}
	for _, route := range routes {
		if route != "GET /assets/*" && !slices.Contains(documented, route) {
			t.Errorf("%s is routed, but not in openapi.yaml", route)
		}
	}
}

func TestUnknownPathsAndMethodsAreProblems(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/assets/none.js" {
			http.NotFound(w, q)
			return
		}
		w.Header().Set("Content-Type", "text/html")
	})
	r := newRig(t, func(c *Config, _ *store) { c.Web = page })
	for name, tc := range map[string]struct {
		method, path string
		status       int
		allow        string
	}{
		"unknown path":        {"GET", "/v1/nothing", 404, ""},
		"unknown path, POST":  {"POST", "/v1/nothing", 404, ""},
		"version alone":       {"GET", "/v1", 404, ""},
		"trailing slash":      {"GET", "/v1/sessions/", 404, ""},
		"docs below":          {"GET", "/docs/nothing", 404, ""},
		"wrong method":        {"PUT", "/v1/sessions", 405, "GET, HEAD, POST"},
		"wrong method by id":  {"PATCH", "/v1/sessions/a", 405, "GET, HEAD, DELETE"},
		"GET where only POST": {"GET", "/v1/sessions/a/rejoin", 405, "POST, OPTIONS"},
		"made-up method":      {"BREW", "/v1/workers", 405, "GET, HEAD"},
		"health":              {"DELETE", "/livez", 405, "GET, HEAD"},
		"a page":              {"GET", "/", 200, ""},
		"a page's file":       {"GET", "/assets/x.js", 200, ""},
		"no such file":        {"GET", "/assets/none.js", 404, ""},
		"no page":             {"GET", "/sessions", 404, ""},
		"page without demo":   {"GET", "/demo", 404, ""},
	} {
		a := r.call(tc.method, tc.path, r.tenant, "")
		if a.status != tc.status || a.Header.Get("Allow") != tc.allow {
			t.Errorf("%s: %d, Allow %q, want %d, %q", name, a.status, a.Header.Get("Allow"), tc.status, tc.allow)
		}
		if tc.status != 200 && a.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: answered as %q", name, a.Header.Get("Content-Type"))
		}
	}
	if n := r.store.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the store", n)
	}
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.call("HEAD", "/v1/sessions", r.tenant, "")
	if a.status != 200 || len(a.body) != 0 || !strings.Contains(a.Header.Get("Content-Type"), "json") {
		t.Errorf("HEAD: %d %q %q", a.status, a.Header, a.body)
	}
}
