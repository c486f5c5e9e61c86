package web_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berthdev/berth/web"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(withBrowser{m})
}

// withBrowser stops the browser after the tests and before leaks are looked for.
type withBrowser struct{ tests *testing.M }

func (b withBrowser) Run() int {
	code := b.tests.Run()
	shared.Close()
	return code
}

func get(t *testing.T, cfg web.Config, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	web.Handler(cfg).ServeHTTP(w, r)
	return w
}

func body(t *testing.T, cfg web.Config, target string) string {
	t.Helper()
	w := get(t, cfg, target)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d", target, w.Code)
	}
	return w.Body.String()
}

// assets lists the paths of all embedded assets, as they lie in the source tree.
func assets(t *testing.T) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS("static"), "assets", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, "/"+name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestEveryFileHasItsTypeAndTag(t *testing.T) {
	t.Parallel()
	types := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
		"": "text/html; charset=utf-8",
	}
	dev := web.Config{Dev: true}
	for _, target := range append(assets(t), "/", "/demo") {
		first := get(t, dev, target)
		if want := types[path.Ext(target)]; want == "" || first.Header().Get("Content-Type") != want {
			t.Errorf("%s: type %q, want %q", target, first.Header().Get("Content-Type"), want)
		}
		tag := first.Header().Get("ETag")
		if again := get(t, dev, target, "If-None-Match", tag); tag == "" || again.Code != http.StatusNotModified {
			t.Errorf("%s: tag %q asked again gives %d, want 304", target, tag, again.Code)
		}
		if other := get(t, dev, target, "If-None-Match", `"other"`); other.Code != http.StatusOK {
			t.Errorf("%s: another tag gives %d, want 200", target, other.Code)
		}
		if got := first.Header().Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: Cache-Control %q", target, got)
		}
	}
}

func TestDevModeChangesPageAndTag(t *testing.T) {
	t.Parallel()
	live, dev := get(t, web.Config{}, "/"), get(t, web.Config{Dev: true}, "/")
	if live.Header().Get("ETag") == dev.Header().Get("ETag") {
		t.Error("one tag for two contents")
	}
	if !strings.Contains(body(t, web.Config{Dev: true}, "/"), `data-mode="dev"`) {
		t.Error("the dashboard does not know that it is in dev mode")
	}
	if strings.Contains(body(t, web.Config{}, "/"), `data-mode="dev"`) {
		t.Error("the dashboard believes that it is in dev mode")
	}
}

func TestOtherPathsAreNotFound(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"/demo", "/demo/", "/demo/sessions", "/assets", "/assets/", "/assets/none.js", "/assets/../dashboard.html",
		"/assets//base.css", "/dashboard.html", "/static/assets/base.css", "/v1/workers",
	} {
		if got := get(t, web.Config{}, target).Code; got != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", target, got)
		}
	}
}

func TestPolicyForbidsWhatThePagesDoNotNeed(t *testing.T) {
	t.Parallel()
	dev := web.Config{Dev: true}
	for target, connect := range map[string]string{
		"/":     "connect-src 'self';",
		"/demo": "connect-src 'self' http: https: ws: wss:;",
	} {
		policy := get(t, dev, target).Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", connect} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: policy %q lacks %q", target, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q allows something unsafe", target, policy)
		}
		if got := get(t, dev, target).Header().Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options %q", target, got)
		}
	}
}

var (
	inlineScript = regexp.MustCompile(`(?is)<script(?:\s[^>]*)?>\s*[^<\s]|<style|\sstyle\s*=|\son[a-z]+\s*=|javascript:`)
	external     = regexp.MustCompile(`(?i)(?:src|href|action|url\(|from|import)\s*[=(]?\s*["']?(?:https?:)?//`)
	reference    = regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"|(?:from|import\()\s*'\./([^']+)'`)
)

func TestPagesAreSelfContained(t *testing.T) {
	t.Parallel()
	dev := web.Config{Dev: true}
	used := map[string]bool{}
	for _, target := range append(assets(t), "/", "/demo") {
		text := body(t, dev, target)
		if target == "/" || target == "/demo" {
			if found := inlineScript.FindString(text); found != "" {
				t.Errorf("%s: inline script or style: %q", target, found)
			}
		}
		if found := external.FindString(text); found != "" {
			t.Errorf("%s: reference to another host: %q", target, found)
		}
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			name := match[1]
			if name == "" {
				name = "/assets/" + match[2]
			}
			used[name] = true
		}
	}
	got := make(map[string]bool)
	for _, name := range assets(t) {
		got[name] = true
	}
	if diff := cmp.Diff(used, got); diff != "" {
		t.Errorf("assets referenced and present (-referenced +present):\n%s", diff)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	web.Handler(web.Config{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/", nil))
	if w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD / = %d with %d bytes, Content-Length %q", w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
	}
}
