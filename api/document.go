package api

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"time"

	spec "github.com/berthdev/berth"
	"github.com/berthdev/berth/internal/auth"
)

//go:embed page
var pages embed.FS

// documents are pages that are the same for everybody, rendered once.
type documents struct {
	reference []byte // /docs
	errors    []byte // /docs/errors
	policy    string // Content-Security-Policy of both: their own style and nothing else
}

func newDocuments() (documents, error) {
	style, err := pages.ReadFile("page/style.css")
	if err != nil {
		return documents{}, fmt.Errorf("api: read style: %w", err)
	}
	reference, err := newReference(spec.OpenAPI())
	if err != nil {
		return documents{}, err
	}
	parsed, err := template.New("").Funcs(template.FuncMap{
		"prose": prose,
		"style": func() template.CSS { return template.CSS(style) }, //nolint:gosec // our own file
	}).ParseFS(pages, "page/*.html")
	if err != nil {
		return documents{}, fmt.Errorf("api: parse pages: %w", err)
	}
	sum := sha256.Sum256(style)
	d := documents{policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
	if d.reference, err = render(parsed, "reference.html", reference); err != nil {
		return documents{}, err
	}
	d.errors, err = render(parsed, "errors.html", errorEntries())
	return d, err
}

func render(parsed *template.Template, name string, data any) ([]byte, error) {
	var page bytes.Buffer
	if err := parsed.ExecuteTemplate(&page, name, data); err != nil {
		return nil, fmt.Errorf("api: render %s: %w", name, err)
	}
	return page.Bytes(), nil
}

// errorEntry is one code on /docs/errors, anchored by its name.
type errorEntry struct {
	Code, Title, Meaning, Remedy string
	Status                       int
	Retryable                    bool
}

func errorEntries() []errorEntry {
	var entries []errorEntry
	for _, k := range problemKinds() {
		entries = append(entries, errorEntry{
			Code: string(k.code), Status: k.status, Title: k.title, Meaning: k.meaning, Remedy: k.remedy, Retryable: k.passes,
		})
	}
	return entries
}

// Docs serves GET /docs.
func (s *service) Docs(w http.ResponseWriter, _ *http.Request) { s.page(w, s.documents.reference) }

// DocsErrors serves GET /docs/errors, where the type of each problem leads.
func (s *service) DocsErrors(w http.ResponseWriter, _ *http.Request) { s.page(w, s.documents.errors) }

func (s *service) page(w http.ResponseWriter, page []byte) {
	w.Header().Set("Content-Security-Policy", s.documents.policy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // an error is a reader that went away
}

// Openapi serves GET /openapi.yaml.
func (s *service) Openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Access-Control-Allow-Origin", "*") // viewers in other pages may load it
	_, _ = w.Write(spec.OpenAPI())
}

// Metrics serves GET /metrics.
func (s *service) Metrics(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Metrics == nil {
		s.notFound(w, r)
		return
	}
	s.cfg.Metrics.ServeHTTP(w, r)
}

// Jwks serves GET /.well-known/jwks.json. The process's clock is good enough for keys that live for weeks.
func (s *service) Jwks(w http.ResponseWriter, r *http.Request) {
	keys, err := s.deps.SigningKeys.Published(r.Context(), time.Now())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	set, err := auth.JWKS(keys)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=60")
	_, _ = w.Write(set)
}
