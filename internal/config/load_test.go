package config_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/internal/config"
)

const databaseURL = "BERTH_DATABASE_URL=postgres://berth:pw@db.internal:5432/berth"

// workerEnv is the least that a worker needs.
func workerEnv(more ...string) []string {
	return append([]string{
		databaseURL, "BERTH_SIGNALING_URL=wss://w1.example.com/rtc", "BERTH_CONTROL_URL=http://10.0.0.1:7881",
	}, more...)
}

func TestDefaultsAreThoseOfTheDesign(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load[config.Worker](workerEnv("BERTH_WORKER_ID=w-1"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Detection{Lease: 6 * time.Second, RejoinWindow: time.Minute}, cfg.Detection); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(config.Renewal{Interval: 2 * time.Second, HoldLimit: 2 * time.Minute}, cfg.Renewal); diff != "" {
		t.Error(diff)
	}
	if cfg.Identity.Slots != 8 || cfg.Signaling.UpgradeRate != 2000 || cfg.Signaling.PingInterval != 10*time.Second {
		t.Errorf("slots %d, upgrade rate %v, ping interval %v", cfg.Identity.Slots, cfg.Signaling.UpgradeRate, cfg.Signaling.PingInterval)
	}
	if cfg.Database.DirectURL.Reveal() != "postgres://berth:pw@db.internal:5432/berth" {
		t.Error("the direct URL is not that of the database")
	}
	api, err := config.Load[config.API]([]string{databaseURL})
	if err != nil {
		t.Fatal(err)
	}
	reaper := config.Reaper{
		Detector: "presence", Sentinel: 100 * time.Millisecond, Tick: time.Second, ConfirmDelay: 400 * time.Millisecond,
		PauseLimit: 45 * time.Second,
	}
	if diff := cmp.Diff(reaper, api.Reaper); diff != "" {
		t.Error(diff)
	}
}

func TestEveryProcessLoadsFromOneSharedEnvironment(t *testing.T) {
	t.Parallel()
	env := workerEnv("BERTH_LISTEN=0.0.0.0:8080", "BERTH_PUBLIC_URL=https://api.example.com", "BERTH_API_KEY=berth_operator_x_y",
		"BERTH_API_URL=http://a:8080", "BERTH_TURN_URLS=stun:s.example.com:3478, turns:t.example.com:5349?transport=tcp",
		"BERTH_TURN_SECRETS=new-secret,old-secret", "BERTH_MEDIA_ANNOUNCE=203.0.113.7:3478",
		"BERTH_ALLOWED_ORIGINS=https://app.example.com", "PATH=/bin", "DATABASE_URL=mysql://other")
	api, err := config.Load[config.API](env)
	if err != nil {
		t.Error(err)
	}
	if want := []string{"stun:s.example.com:3478", "turns:t.example.com:5349?transport=tcp"}; !slices.Equal(api.TURN.URLs, want) {
		t.Errorf("TURN URLs %q, want %q", api.TURN.URLs, want)
	}
	if got := api.TURN.Secrets.Reveal(); !slices.Equal(got, []string{"new-secret", "old-secret"}) {
		t.Errorf("got %d TURN secrets in another order", len(got))
	}
	worker, err := config.Load[config.Worker](env)
	if err != nil {
		t.Error(err)
	}
	if worker.Media.Announce != (config.Announce{Addr: netip.MustParseAddr("203.0.113.7"), Port: 3478}) {
		t.Errorf("announce %v", worker.Media.Announce)
	}
	if _, err := config.Load[config.Migrate](env); err != nil {
		t.Error(err)
	}
	if _, err := config.Load[config.Tool](env); err != nil {
		t.Error(err)
	}
}

func TestToolsNeedNothing(t *testing.T) {
	t.Parallel()
	if _, err := config.Load[config.Tool](nil); err != nil {
		t.Error(err)
	}
	_, err := config.Load[config.Tool]([]string{"BERTH_API_URL=a:8080"})
	wantProblems(t, err, "BERTH_API_URL")
}

func TestRequiredVariablesAreNamedAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Load[config.Worker]([]string{"BERTH_LEASE=6", "BERTH_WORKER_SLOTS=0"})
	wantProblems(t, err, "BERTH_DATABASE_URL", "BERTH_SIGNALING_URL", "BERTH_CONTROL_URL", "BERTH_LEASE", "BERTH_WORKER_SLOTS")
}

func TestWorkerIDDefaultsToTheHostName(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load[config.Worker](workerEnv())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Identity.WorkerID == "" {
		t.Error("no worker id")
	}
}

func TestLastOfARepeatedNameWins(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load[config.Migrate]([]string{databaseURL, "BERTH_LOG_LEVEL=error", "BERTH_LOG_LEVEL=debug"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Log.Level.String() != "DEBUG" {
		t.Errorf("level %v, want DEBUG", cfg.Log.Level)
	}
}

// Not parallel: it sets variables of the test process to prove that they are not read.
func TestOnlyTheGivenEnvironmentIsRead(t *testing.T) {
	t.Setenv("BERTH_LOG_LEVEL", "error")
	t.Setenv("BERTH_LOG_FORMAT", "nonsense")
	t.Setenv("DATABASE_URL", "postgres://other/db")
	t.Setenv("VALUE", "nonsense")
	cfg, err := config.Load[config.Migrate]([]string{databaseURL})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Log.Level.String() != "INFO" || !strings.Contains(cfg.Database.URL.Reveal(), "db.internal") {
		t.Error("a variable of the test process was read")
	}
}

// wantProblems checks that exactly these variables are reported.
func wantProblems(t *testing.T, err error, names ...string) {
	t.Helper()
	var got []string
	for _, p := range problems(err) {
		got = append(got, p.Variable)
	}
	slices.Sort(got)
	slices.Sort(names)
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("reported variables (-want +got):\n%s", diff)
	}
}

// problems unpacks a joined error.
func problems(err error) []config.Problem {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var list []config.Problem
	for _, one := range joined.Unwrap() {
		if p, ok := one.(config.Problem); ok { //nolint:errorlint // as above
			list = append(list, p)
		}
	}
	return list
}
