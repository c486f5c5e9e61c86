package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged returns what one call writes in each format.
func logged(call func(*slog.Logger)) map[string]string {
	out := map[string]string{}
	for _, format := range []string{"json", "text"} {
		var w bytes.Buffer
		call(telemetry.NewLogger(&w, format, slog.LevelInfo))
		out[format] = w.String()
	}
	return out
}

type credentials struct{ Username string }

func (c credentials) LogValue() slog.Value {
	return slog.GroupValue(slog.String("username", c.Username))
}

func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	ctx := t.Context()
	for what, call := range map[string]func(*slog.Logger){
		"by key":         func(l *slog.Logger) { l.InfoContext(ctx, "test", "token", secret) },
		"by last word":   func(l *slog.Logger) { l.InfoContext(ctx, "test", "rejoin_token", secret) },
		"by first word":  func(l *slog.Logger) { l.InfoContext(ctx, "test", "password_hash", secret) },
		"plural":         func(l *slog.Logger) { l.InfoContext(ctx, "test", "credentials", secret) },
		"header":         func(l *slog.Logger) { l.InfoContext(ctx, "test", "Set-Cookie", secret) },
		"capitals":       func(l *slog.Logger) { l.InfoContext(ctx, "test", "turnCredential", secret) },
		"api key":        func(l *slog.Logger) { l.InfoContext(ctx, "test", "API_KEY", secret) },
		"sdp":            func(l *slog.Logger) { l.InfoContext(ctx, "test", "offer_sdp", secret) },
		"with":           func(l *slog.Logger) { l.With("authorization", secret).InfoContext(ctx, "test") },
		"with group":     func(l *slog.Logger) { l.WithGroup("token").InfoContext(ctx, "test", "value", secret) },
		"group":          func(l *slog.Logger) { l.InfoContext(ctx, "test", slog.Group("secret", "value", secret)) },
		"inside a group": func(l *slog.Logger) { l.InfoContext(ctx, "test", slog.Group("request", "cookie", secret)) },
		"log valuer":     func(l *slog.Logger) { l.InfoContext(ctx, "test", "credential", credentials{secret}) },
		"bytes":          func(l *slog.Logger) { l.InfoContext(ctx, "test", "token", []byte(secret)) },
		"headers": func(l *slog.Logger) {
			l.InfoContext(ctx, "test", "received", http.Header{"Authorization": {secret}})
		},
		"request": func(l *slog.Logger) {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/?token="+secret, nil)
			l.InfoContext(ctx, "test", "request", r, "url", r.URL)
		},
		"url user": func(l *slog.Logger) {
			l.InfoContext(ctx, "test", "url", &url.URL{Scheme: "https", Host: "h", User: url.UserPassword("u", secret)})
		},
	} {
		for format, out := range logged(call) {
			if out == "" || strings.Contains(out, secret) || strings.Contains(out, "aHVudGVyMg") {
				t.Errorf("%s, %s: %q", what, format, out)
			}
		}
	}
}

func TestHarmlessAttributesAreLogged(t *testing.T) {
	t.Parallel()
	for format, out := range logged(func(l *slog.Logger) {
		l.InfoContext(t.Context(), "session placed", "session_id", "s-1", "generation", 7, "err", context.Canceled, "tokenizer", "plain",
			"took", 1500*time.Millisecond)
	}) {
		for _, want := range []string{"session placed", "s-1", "7", "context canceled", "plain", "1.5s"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s lacks %q: %s", format, want, out)
			}
		}
	}
}

func TestLinesCarryTheRequestIDOfTheirContext(t *testing.T) {
	t.Parallel()
	ctx := telemetry.WithRequestID(t.Context(), "r-1")
	out := logged(func(l *slog.Logger) {
		l.With("worker_id", "w-1").InfoContext(ctx, "first")
		l.InfoContext(t.Context(), "second")
		l.DebugContext(ctx, "below the level")
	})
	lines := strings.Split(strings.TrimSpace(out["json"]), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %d lines, want 2", len(lines))
	}
	var first, second map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(lines[1]), &second); err != nil {
		t.Fatal(err)
	}
	if first["request_id"] != "r-1" || first["worker_id"] != "w-1" || second["request_id"] != nil {
		t.Errorf("first %v, second %v", first, second)
	}
	if !strings.Contains(out["text"], "request_id=r-1") || strings.Contains(out["text"], "\x1b[") {
		t.Errorf("text: %q", out["text"])
	}
}

func TestOnlyHarmlessRequestIDsAreTakenFromCallers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9._~-]{0,140}`)).Draw(t, "sent")
		got := telemetry.RequestIDFrom(sent)
		if got == "" || len(got) > 128 || strings.ContainsAny(got, "\r\n\x00 \"") {
			t.Fatalf("%q became %q", sent, got)
		}
	})
	if got := telemetry.RequestIDFrom("abc-1"); got != "abc-1" {
		t.Errorf("got %q, want the caller's id", got)
	}
	if first, second := telemetry.NewRequestID(), telemetry.NewRequestID(); first == second {
		t.Error("two request ids are equal")
	}
}

func TestRegistryServesBuildAndRuntimeMetrics(t *testing.T) {
	t.Parallel()
	reg, err := telemetry.NewRegistry("v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	telemetry.Handler(reg).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{`version="v1.2.3"`, "berth_build_info{", "go_goroutines ", "process_start_time_seconds "} {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}

func TestHTTPMetricsHaveClosedLabels(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m, err := telemetry.NewHTTPMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		m.Observe("", telemetry.NewRequestID(), 10_000, time.Millisecond)
		m.Observe("/v1/sessions/{id}", http.MethodGet, 0, time.Millisecond)
	}
	if n := testutil.CollectAndCount(reg, "berth_http_request_duration_seconds"); n != 2 {
		t.Errorf("%d series, want 2", n)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if _, err := telemetry.NewHTTPMetrics(reg); err == nil {
		t.Error("a second registration is accepted")
	}
}
