package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/berthdev/berth/internal/config"
)

// loadBoth loads the processes that read most variables, so that each one is tried as an own and as a foreign
// one, and returns the errors by command.
func loadBoth(env []string) map[string]error {
	_, api := config.Load[config.API](env)
	_, worker := config.Load[config.Worker](env)
	return map[string]error{"api": api, "worker": worker}
}

// requireRefusal checks that the processes name the variable and hide the value.
func requireRefusal(t *testing.T, name, value string) {
	t.Helper()
	for command, err := range loadBoth([]string{name + "=" + value}) {
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+name+": ") {
			t.Errorf("%s: %s=%q is not refused by name: %v", command, name, value, err)
			continue
		}
		if secret := strings.Trim(value, " \t\"'"); len(secret) > 12 && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the problem with %s prints its value", command, name)
		}
	}
}

func TestNoVariableMayBeEmptyOrQuotedOrPadded(t *testing.T) {
	t.Parallel()
	for _, name := range config.Names() {
		for _, value := range []string{"", " ", "\t\n", `"hunter2-secret-x"`, `'10s'`, " hunter2-secret-x", "hunter2-secret-x ", "a\x00b", "\xff"} {
			requireRefusal(t, name, value)
		}
	}
}

// settings returns what Describe knows for each variable of any process, with a value as sample.
func settings() map[string]string {
	all := map[string]string{}
	for _, list := range [][]config.Setting{
		config.Describe(config.API{}), config.Describe(config.Worker{}), config.Describe(config.Migrate{}), config.Describe(config.Tool{}),
	} {
		for _, s := range list {
			all[s.Variable] = s.Default
		}
	}
	return all
}

func TestDurationsNeedUnitsAndRanges(t *testing.T) {
	t.Parallel()
	count := 0
	for name, standard := range settings() {
		if !strings.HasSuffix(standard, "s") || strings.HasSuffix(standard, "/s") {
			continue
		}
		count++
		for _, value := range []string{"10", "0", "-5s", "+5s", "1h30", "0x10", "1e3s", "s", "10 s", "9999999999h", "10S", "ten"} {
			requireRefusal(t, name, value)
		}
	}
	for _, name := range []string{"BERTH_LEASE", "BERTH_PING_INTERVAL", "BERTH_TURN_TTL", "BERTH_REJOIN_WINDOW"} {
		_, err := config.Load[config.Worker](workerEnv(name + "=999h"))
		wantProblems(t, err, name)
	}
	if count < 14 {
		t.Errorf("only %d durations were tried", count)
	}
}

func TestNumbersAreDecimalAndInRange(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"BERTH_WORKER_SLOTS", "BERTH_DATABASE_POOL_SIZE", "BERTH_KEEPALIVE_COUNT"} {
		for _, value := range []string{"010", "0x10", "0b1", "1_000", "-1", "+1", "1e3", "4.0", "null", "99999999999999999999"} {
			requireRefusal(t, name, value)
		}
	}
	for _, value := range []string{"0", "10001", "2147483648", "1000000000000"} {
		requireRefusal(t, "BERTH_WORKER_SLOTS", value)
		_, err := config.Load[config.Worker](workerEnv("BERTH_WORKER_SLOTS=" + value))
		wantProblems(t, err, "BERTH_WORKER_SLOTS")
	}
	_, err := config.Load[config.Worker](workerEnv("BERTH_UPGRADE_RATE=0/s", "BERTH_FRAME_RATE=100001/s", "BERTH_UPGRADE_RATE_PER_ADDRESS=0/s"))
	wantProblems(t, err, "BERTH_UPGRADE_RATE", "BERTH_FRAME_RATE")
}

func TestNetworksAreAddressesOrExactPrefixes(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"10.1.2.3/8", "10.0.0.0/33", "proxy.example.com", "fe80::1%eth0", "10.0.0.0:80", "::ffff:10.0.0.0/104", "2001:db8::1/32"} {
		_, err := config.Load[config.Worker](workerEnv("BERTH_TRUSTED_PROXIES=" + value))
		wantProblems(t, err, "BERTH_TRUSTED_PROXIES")
	}
	settings, err := config.Load[config.Worker](workerEnv("BERTH_TRUSTED_PROXIES=10.0.0.0/8, ::1,::ffff:192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"10.0.0.0/8", "::1/128", "192.0.2.1/32"}
	for i, prefix := range config.Prefixes(settings.Proxies.Trusted) {
		if prefix.String() != want[i] {
			t.Errorf("got %s, want %s", prefix, want[i])
		}
	}
}

func TestMalformedValuesAreRefused(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"BERTH_LOG_LEVEL":        {"INFO", "verbose", "info+2", "0"},
		"BERTH_LOG_FORMAT":       {"xml", "JSON"},
		"BERTH_DEV":              {"1", "yes", "True", "t"},
		"BERTH_UPGRADE_RATE":     {"2000", "2000/m", "-1/s", "010/s", "/s", "1.5/s", "9999999999/s"},
		"BERTH_MEDIA_ANNOUNCE":   {"worker.example.com", "203.0.113.7:0", "203.0.113.7:99999", "0.0.0.0", "fe80::1%eth0", "224.0.0.1"},
		"BERTH_TURN_URLS":        {"turn:a,,turn:b", ","},
		"BERTH_ALLOWED_ORIGINS":  {"https://a,,https://b"},
		"BERTH_WORKER_SLOTS_NOT": {"8"},
	} {
		for _, value := range values {
			requireRefusal(t, name, value)
		}
	}
}

func TestFormatsAreCheckedByTheProcessThatUsesThem(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"BERTH_SIGNALING_LISTEN": {"7880", "host", ":", ":http", ":70000", "1.2.3.4:5:6", "a b:1", ":007"},
		"BERTH_SIGNALING_URL":    {"w1.example.com", "http://w1", "wss://", "wss://w1", "wss://w1/", "wss://w1/rtc/", "wss://u:p@w1/rtc", "wss://w1/rtc?x=1", "wss://w1/rtc#x"},
		"BERTH_CONTROL_URL":      {"wss://w1", "http://w1/", "10.0.0.1:7881"},
		"BERTH_API_URLS":         {"wss://api", "http://api/", "api:8080", "http://a,api:8080", "http://u:p@api", "http://a http://b"},
		"BERTH_DATABASE_URL":     {"mysql://db/x", "db", "postgres://", "postgres://u:p%zz@h/d", "postgres://u:pa#ss@h/d"},
		"BERTH_WORKER_ID":        {"-w", "w/1", "w 1", strings.Repeat("w", 129)},
		"BERTH_REGION":           {"EU-West", "-eu", "eu_west", strings.Repeat("e", 33)},
		"BERTH_ALLOWED_ORIGINS": {
			"*", "null", "app.example.com", "https://app.example.com/", "https://App.example.com", "https://app.example.com:443",
			"http://a:80", "https://*.example.com", "https://a/x",
		},
		"BERTH_TURN_URLS":      {"http://turn", "turn:", "turn://host", "stun:a?transport=udp", "turn:a?transport=sctp"},
		"BERTH_KEEPALIVE_IDLE": {"1500ms"},
	} {
		for _, value := range values {
			_, err := config.Load[config.Worker](workerEnv(name + "=" + value))
			wantProblems(t, err, name)
		}
	}
}

func TestRulesBetweenVariables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"BERTH_LEASE=4s"}, "BERTH_LEASE"},
		{[]string{"BERTH_RENEW_INTERVAL=3s"}, "BERTH_LEASE"},
		{[]string{"BERTH_HOLD_LIMIT=5s"}, "BERTH_HOLD_LIMIT"},
		{[]string{"BERTH_TURN_URLS=turn:t.example.com"}, "BERTH_TURN_SECRETS"},
		{[]string{"BERTH_TURN_SECRETS=one"}, "BERTH_TURN_URLS"},
		{[]string{"BERTH_TURN_URLS=stun:t.example.com", "BERTH_TURN_SECRETS=one"}, "BERTH_TURN_URLS"},
		{[]string{"BERTH_TURN_URLS=turn:t.example.com", "BERTH_TURN_SECRETS=a,b,c"}, "BERTH_TURN_SECRETS"},
		{[]string{"BERTH_SIGNALING_LISTEN=[::]:7880", "BERTH_CONTROL_LISTEN=127.0.0.1:0"}, ""},
	} {
		_, err := config.Load[config.Worker](workerEnv(c.env...))
		if c.want == "" {
			wantProblems(t, err)
			continue
		}
		wantProblems(t, err, c.want)
	}
	for setting, want := range map[string]string{
		"BERTH_LISTEN=0.0.0.0:8080": "BERTH_PUBLIC_URL",
		"BERTH_CONFIRM_DELAY=6s":    "BERTH_CONFIRM_DELAY",
		"BERTH_REAPER_TICK=10s":     "BERTH_REAPER_TICK",
		"BERTH_PAUSE_LIMIT=6s":      "BERTH_PAUSE_LIMIT",
	} {
		_, err := config.Load[config.API]([]string{databaseURL, setting})
		wantProblems(t, err, want)
	}
}

func TestUnknownNamesAreRefusedWithTheNearestKnownOne(t *testing.T) {
	t.Parallel()
	for name, remedy := range map[string]string{
		"BERTH_WORKER_SLOT":         "did you mean BERTH_WORKER_SLOTS?",
		"BERTH_DATABASEURL":         "did you mean BERTH_DATABASE_URL?",
		"berth_listen":              "did you mean BERTH_LISTEN?",
		"BERTH_TRUSTED_PROXY":       "did you mean BERTH_TRUSTED_PROXIES?",
		"BERTH_LISTEN_FILE":         "only secrets are read from files: set BERTH_LISTEN",
		"BERTH_QUITE_ANOTHER_THING": "docs/configuration.md",
		"BERTH_TEST_CLOCK_OFFSET":   "docs/configuration.md", // the clock of this binary is the host's
		"BERTH_":                    "docs/configuration.md",
	} {
		_, err := config.Load[config.Tool]([]string{name + "=x"})
		if err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v; want %q", name, err, remedy)
		}
	}
}

func TestVariablesOfKubernetesAndOfTestsAreIgnoredAndLookalikesAreNot(t *testing.T) {
	t.Parallel()
	_, err := config.Load[config.Tool]([]string{
		"BERTH_SERVICE_HOST=10.96.0.7", "BERTH_SERVICE_PORT=8080", "BERTH_SERVICE_PORT_HTTP=8080", "BERTH_PORT=tcp://10.96.0.7:8080",
		"BERTH_PORT_8080_TCP=tcp://10.96.0.7:8080", "BERTH_PORT_8080_TCP_PROTO=tcp", "BERTH_PORT_8080_TCP_PORT=8080",
		"BERTH_PORT_8080_TCP_ADDR=10.96.0.7", "BERTH_API_SERVICE_HOST=fd00::7", "BERTH_API_PORT=udp://10.96.0.7:53", "BERTH_TEST_SEED=7",
	})
	if err != nil {
		t.Error(err)
	}
	_, err = config.Load[config.Tool]([]string{"BERTH_PORT=8080", "BERTH_SERVICE_HOST=db.example.com"})
	wantProblems(t, err, "BERTH_PORT", "BERTH_SERVICE_HOST")
}

func TestSecretsComeFromFiles(t *testing.T) {
	t.Parallel()
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, ending := range []string{"", "\n", "\r\n"} {
		cfg, err := config.Load[config.Migrate]([]string{"BERTH_DATABASE_URL_FILE=" + write("postgres://u:p@h/d"+ending)})
		if err != nil || cfg.Database.URL.Reveal() != "postgres://u:p@h/d" {
			t.Errorf("ending %q: %v", ending, err)
		}
	}
	for what, path := range map[string]string{
		"missing": filepath.Join(t.TempDir(), "none"), "a directory": t.TempDir(), "empty": write("\n"), "two lines": write("postgres://h/d\n\n"),
		"padded": write(" postgres://h/d"), "too long": write(strings.Repeat("x", 70_000)), "the secret itself": "postgres://u:hunter2@h/d",
	} {
		_, err := config.Load[config.Migrate]([]string{"BERTH_DATABASE_URL_FILE=" + path})
		wantProblems(t, err, "BERTH_DATABASE_URL_FILE")
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the problem prints the secret", what)
		}
		if (what == "missing" || what == "a directory") && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the problem does not name the path: %v", what, err)
		}
	}
	_, err := config.Load[config.Migrate]([]string{databaseURL, "BERTH_DATABASE_URL_FILE=" + write("postgres://h/d")})
	wantProblems(t, err, "BERTH_DATABASE_URL")
}

func TestAHandMadeStructIsValidatedToo(t *testing.T) {
	t.Parallel()
	err := config.Worker{}.Validate()
	got := map[string]bool{}
	for _, p := range problems(err) {
		got[p.Variable] = true
	}
	for _, name := range []string{
		"BERTH_DATABASE_URL", "BERTH_WORKER_ID", "BERTH_WORKER_SLOTS", "BERTH_SIGNALING_LISTEN", "BERTH_LEASE", "BERTH_UPGRADE_RATE",
	} {
		if !got[name] {
			t.Errorf("%s is not reported", name)
		}
	}
	cfg, err := config.Load[config.Worker](workerEnv("BERTH_WORKER_ID=w"))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if reflect.DeepEqual(cfg, config.Worker{}) {
		t.Error("nothing was loaded")
	}
}

func TestWorkerLabelsAreNamesWithOneValueEach(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load[config.Worker](workerEnv("BERTH_WORKER_LABELS=gpu=a10, zone=eu/west-1.b"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"gpu": "a10", "zone": "eu/west-1.b"}
	if got := config.LabelMap(cfg.Identity.Labels); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	long := strings.Repeat("x", 64)
	for _, value := range []string{
		"gpu", "gpu=", "=a10", "gpu=a10,", "gpu=a=b", "gpu:a10", "g pu=a", "-gpu=a", "gpu=/a", long + "=a", "gpu=" + long, "gpü=a",
		"gpu=a10,gpu=a10", "gpu=a10,gpu=l4", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,p=1,q=1",
	} {
		_, err := config.Load[config.Worker](workerEnv("BERTH_WORKER_LABELS=" + value))
		wantProblems(t, err, "BERTH_WORKER_LABELS")
	}
}

func TestSlowStartMayBeOff(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"0s": "0s", "10m": "10m0s", "500ms": "500ms"} {
		cfg, err := config.Load[config.Worker](workerEnv("BERTH_SLOW_START=" + value))
		if err != nil || cfg.Identity.SlowStart.String() != want {
			t.Errorf("%s: got %v, %v", value, cfg.Identity.SlowStart, err)
		}
	}
	_, err := config.Load[config.Worker](workerEnv("BERTH_SLOW_START=11m"))
	wantProblems(t, err, "BERTH_SLOW_START")
}
