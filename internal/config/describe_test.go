package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/config"
)

// TestEffectiveSettingsLoadAgain draws values for some variables, loads them, and feeds what
// Describe shows back in: nothing may be lost, replaced or shown in another form.
func TestEffectiveSettingsLoadAgain(t *testing.T) {
	t.Parallel()
	values := map[string]*rapid.Generator[string]{
		"BERTH_WORKER_SLOTS":     rapid.Map(rapid.IntRange(1, 10000), func(n int) string { return fmt.Sprint(n) }),
		"BERTH_PING_INTERVAL":    rapid.Map(rapid.IntRange(1000, 300000), func(n int) string { return fmt.Sprintf("%dms", n) }),
		"BERTH_RENEW_INTERVAL":   rapid.Map(rapid.IntRange(100, 2900), func(n int) string { return fmt.Sprintf("%dms", n) }),
		"BERTH_LOG_LEVEL":        rapid.SampledFrom([]string{"debug", "info", "warn", "error"}),
		"BERTH_LOG_FORMAT":       rapid.SampledFrom([]string{"json", "text"}),
		"BERTH_UPGRADE_RATE":     rapid.Map(rapid.IntRange(1, 1_000_000), func(n int) string { return fmt.Sprintf("%d/s", n) }),
		"BERTH_MEDIA_ANNOUNCE":   rapid.SampledFrom([]string{"203.0.113.7", "203.0.113.7:3478", "2001:db8::1", "[2001:db8::1]:9"}),
		"BERTH_ALLOWED_ORIGINS":  rapid.SampledFrom([]string{"https://a.example.com", "https://a.example.com,http://localhost:5173"}),
		"BERTH_REGION":           rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,31}`),
		"BERTH_WORKER_ID":        rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._~-]{0,127}`),
		"BERTH_SIGNALING_LISTEN": rapid.Map(rapid.IntRange(0, 65535), func(n int) string { return fmt.Sprintf("127.0.0.1:%d", n) }),
		"BERTH_DEV":              rapid.SampledFrom([]string{"true", "false"}),
	}
	rapid.Check(t, func(t *rapid.T) {
		env := workerEnv()
		given := map[string]string{}
		for name, generator := range values {
			if rapid.Bool().Draw(t, "set "+name) {
				given[name] = generator.Draw(t, name)
				env = append(env, name+"="+given[name])
			}
		}
		cfg, err := config.Load[config.Worker](env)
		if err != nil {
			t.Fatal(err)
		}
		again := []string{databaseURL}
		for _, s := range config.Describe(cfg) {
			if value, ok := given[s.Variable]; ok && !strings.Contains(value, "ms") && s.Value != value {
				t.Errorf("%s=%s is shown as %s", s.Variable, value, s.Value)
			}
			if s.Value != "" && !strings.Contains(s.Variable, "DATABASE") {
				again = append(again, s.Variable+"="+s.Value)
			}
		}
		second, err := config.Load[config.Worker](append(again, "BERTH_DATABASE_POOL_SIZE=10"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cfg, second, comparer()); diff != "" {
			t.Error(diff)
		}
	})
}

// comparer compares addresses by value; their fields are not exported.
func comparer() cmp.Option {
	return cmp.Comparer(func(a, b config.Announce) bool { return a == b })
}

func TestNoFormatterPrintsASecret(t *testing.T) {
	t.Parallel()
	const text = "hunter2"
	secret := config.NewSecret(text)
	hidden := struct {
		inner config.Secret
		list  config.Secrets
	}{secret, config.Secrets{secret}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		for _, value := range []any{secret, &secret, config.Secrets{secret}, hidden, &hidden, config.Database{URL: secret}} {
			out := fmt.Sprintf(verb, value)
			if strings.Contains(out, text) || strings.Contains(strings.ToLower(out), fmt.Sprintf("%x", text)) {
				t.Errorf("%s of %T prints the secret: %s", verb, value, out)
			}
		}
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).InfoContext(t.Context(), "test", "value", secret, "config", config.Database{URL: secret})
	encoded, err := json.Marshal(config.TURN{Secrets: config.Secrets{secret}})
	if err != nil {
		t.Fatal(err)
	}
	if out := log.String() + string(encoded); strings.Contains(out, text) {
		t.Errorf("the secret is printed: %s", out)
	}
	for _, s := range config.Describe(config.Tool{Client: config.Client{APIKey: secret}}) {
		if strings.Contains(s.Value, text) {
			t.Errorf("%s is shown", s.Variable)
		}
	}
}

func TestNamesAreUniqueAndPrefixed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range config.Names() {
		if seen[name] || !strings.HasPrefix(name, "BERTH_") {
			t.Errorf("%s is repeated or lacks the prefix", name)
		}
		seen[name] = true
	}
	if !seen["BERTH_DATABASE_URL_FILE"] || seen["BERTH_LISTEN_FILE"] {
		t.Error("files must be for secrets, and for all of them")
	}
}

func TestConfigurationPageIsFresh(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "configuration.md")
	if *update {
		if err := os.WriteFile(path, []byte(config.Markdown()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), config.Markdown()); diff != "" {
		t.Errorf("docs/configuration.md is stale: run make generate\n%s", diff)
	}
}
