package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var embedded embed.FS

// Config holds what is optional.
type Config struct {
	// Dev adds the demo page and the links to it. Default: false.
	Dev bool
}

// Handler serves /, /assets/* and, when cfg.Dev is set, /demo. It answers GET and HEAD; mount it for those.
func Handler(cfg Config) http.Handler {
	return &site{dev: cfg.Dev}
}

type site struct {
	dev bool
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file := s.fileOf(r.URL.Path)
	content, err := fs.ReadFile(embedded, file)
	if err != nil { // no such file, a folder, or a path like /assets/../x
		http.NotFound(w, r)
		return
	}
	if s.dev {
		content = markDev(content)
	}
	setHeaders(w.Header(), file, content)
	http.ServeContent(w, r, file, time.Time{}, bytes.NewReader(content))
}

// fileOf maps a path to an embedded file, or to "", which is none.
func (s *site) fileOf(urlPath string) string {
	switch {
	case urlPath == "/":
		return "static/dashboard.html"
	case urlPath == "/demo" && s.dev:
		return "static/demo.html"
	case strings.HasPrefix(urlPath, "/assets/"):
		return "static" + urlPath
	default:
		return ""
	}
}

// markDev switches on what a page shows under berth dev only.
func markDev(content []byte) []byte {
	return bytes.Replace(content, []byte(`data-mode="live"`), []byte(`data-mode="dev"`), 1)
}

// contentTypes is complete for the files that are embedded. Not asked of the system, whose tables differ.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

func setHeaders(h http.Header, file string, content []byte) {
	h.Set("Content-Type", contentTypes[path.Ext(file)])
	h.Set("Content-Security-Policy", policyOf(file))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", permissionsOf(file))
	// Kept, but never used without asking: names carry no version.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", etagOf(content))
}

// etagOf is a strong validator: equal exactly for equal content (RFC 9110 section 8.8.3).
func etagOf(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
}

// policyOf lets a page load its own files and nothing else. The demo also talks to workers and to the API that its
// session was placed by, wherever they are.
func policyOf(file string) string {
	connect := "'self'"
	if file == "static/demo.html" {
		connect = "'self' http: https: ws: wss:"
	}
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'self'",
		"img-src 'self'",
		"media-src 'self' blob: mediastream:",
		"connect-src " + connect,
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
	}, "; ")
}

func permissionsOf(file string) string {
	if file == "static/demo.html" {
		return "camera=(self), microphone=(self), geolocation=()"
	}
	return "camera=(), microphone=(), geolocation=()"
}
