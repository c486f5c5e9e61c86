package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/config"
)

func TestWorkerThatIsDownCannotBeKilled(t *testing.T) {
	t.Parallel()
	f := &fleet{members: []*member{{id: "w1"}}}
	for id, want := range map[string]berth.Code{"w1": berth.CodeConflict, "w2": berth.CodeNotFound} {
		if code := berth.RefusalCode(f.Kill(t.Context(), id)); code != want {
			t.Errorf("%s: %q, want %q", id, code, want)
		}
	}
}

func TestDevDetectsAsItIsTold(t *testing.T) {
	t.Parallel()
	told, err := config.Load[config.Local]([]string{"BERTH_DETECTOR=lease"})
	if err != nil {
		t.Fatal(err)
	}
	settings, err := devAPISettings("postgres://local:1/berth", "127.0.0.1:0", told.Reaper.Detector)
	if err != nil {
		t.Fatal(err)
	}
	if got := detection(settings).Detector; got != berth.DetectLease {
		t.Errorf("detector %s", got)
	}
	shell{"BERTH_DETECTOR=hope"}.refuses(t, 2, "BERTH_DETECTOR", "dev")
}

func TestWorkersOfDevDoNotInheritSettings(t *testing.T) {
	t.Parallel()
	m := &member{id: "w1", signaling: 20001, control: 20002, media: 20003}
	inherited := []string{
		"PATH=/bin", "BERTH_API_URLS=https://api.prod.example.com", "BERTH_DATABASE_URL_FILE=/run/secrets/database", "BERTH_DATABASE_DIRECT_URL=postgres://prod/berth", "BERTH_LEASE=30s",
	}
	environment := m.environment(inherited, "postgres://local:1/berth", "http://127.0.0.1:2", "warn")
	settings, err := config.Load[config.Worker](environment)
	if err != nil {
		t.Fatal(err)
	}
	if url := settings.Database.DirectURL.Reveal(); url != "postgres://local:1/berth" {
		t.Errorf("direct URL %s", url)
	}
	if urls := settings.Renewal.APIURLs; !slices.Equal(urls, []string{"http://127.0.0.1:2"}) {
		t.Errorf("API URLs %q", urls)
	}
	if settings.Detection.Lease == 30*time.Second || settings.Log.Level.String() != "WARN" {
		t.Errorf("lease %v, level %v", settings.Detection.Lease, settings.Log.Level)
	}
	if !slices.Contains(environment, "PATH=/bin") || strings.Contains(strings.Join(environment, " "), "prod") {
		t.Errorf("environment %q", environment)
	}
}
