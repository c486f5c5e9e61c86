package api

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	spec "github.com/berthdev/berth"
	"github.com/berthdev/berth/internal/telemetry"
)

func TestDocumentsAreServedWithoutAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.Metrics = telemetry.Handler(prometheus.NewRegistry()) })
	if a := r.call("GET", "/openapi.yaml", "", ""); a.status != 200 || !bytes.Equal(a.body, spec.OpenAPI()) {
		t.Errorf("openapi.yaml: %d, %d bytes", a.status, len(a.body))
	}
	if a := r.call("GET", "/metrics", "", ""); a.status != 200 {
		t.Errorf("metrics: %d", a.status)
	}
	a := r.call("GET", "/.well-known/jwks.json", "", "")
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(a.body, &set); err != nil || len(set.Keys) == 0 || set.Keys[0]["kty"] != "OKP" || set.Keys[0]["d"] != "" {
		t.Errorf("key set: %d %v", a.status, err)
	}
	a = r.call("GET", "/docs", "", "")
	if a.status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
		t.Errorf("docs: %d %s", a.status, a.Header.Get("Content-Type"))
	}
}

func TestReferenceShowsEveryOperationAndSchema(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	page := string(newRig(t, nil).call("GET", "/docs", "", "").body)
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			if !strings.Contains(page, `id="`+operation.OperationID+`"`) {
				t.Errorf("%s is missing", operation.OperationID)
			}
		}
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(page, `id="schema-`+name+`"`) {
			t.Errorf("schema %s is missing", name)
		}
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("the link to #%s leads nowhere", link[1])
		}
	}
	if regexp.MustCompile(`(?i)<script|https?://[^"]*\.(js|css|woff)`).MatchString(page) {
		t.Error("the page loads something")
	}
}
