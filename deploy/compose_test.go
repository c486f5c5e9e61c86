// Package deploy_test checks the files that people deploy Berth with: that ports, addresses, dependencies and names in them
// agree with each other and with the program. It needs no container engine; `make test/compose` runs them in one.
package deploy_test

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/berthdev/berth/internal/config"
)

// compose is the part of compose.yaml that the rules are about. Unknown keys are allowed: an engine checks those.
type compose struct {
	Services map[string]service `yaml:"services"`
}

type service struct {
	Image       string                `yaml:"image"`
	Command     []string              `yaml:"command"`
	Environment map[string]string     `yaml:"environment"`
	Ports       []string              `yaml:"ports"`
	Restart     string                `yaml:"restart"`
	DependsOn   map[string]dependency `yaml:"depends_on"`
	Healthcheck healthcheck           `yaml:"healthcheck"`
}

type dependency struct {
	Condition string `yaml:"condition"`
}

type healthcheck struct {
	Test    []string `yaml:"test"`
	Disable bool     `yaml:"disable"`
}

// published is one line under ports: host address and port, container port and protocol.
type published struct {
	address, host, container, protocol string
}

func readCompose(t *testing.T) compose {
	t.Helper()
	text, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatalf("parse compose.yaml: %v", err)
	}
	return c
}

// running returns the names of services that run `berth <command>`, sorted.
func (c compose) running(command string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		if s := c.Services[name]; len(s.Command) > 0 && s.Command[0] == command {
			names = append(names, name)
		}
	}
	return names
}

func (s service) published(t *testing.T) []published {
	t.Helper()
	var ports []published
	for _, line := range s.Ports {
		mapping, protocol, ok := strings.Cut(line, "/")
		parts := strings.Split(mapping, ":")
		if !ok || len(parts) != 3 {
			t.Fatalf("port %q: write address:port:port/protocol, so that nothing is left to defaults", line)
		}
		ports = append(ports, published{parts[0], parts[1], parts[2], protocol})
	}
	return ports
}

// publishes tells whether the port that the process listens on is published under the same number at address:port.
func (s service) publishes(t *testing.T, address, port, protocol string) bool {
	t.Helper()
	if address == "localhost" {
		address = "127.0.0.1"
	}
	return slices.Contains(s.published(t), published{address, port, port, protocol})
}

func TestComposeHasEveryProcess(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for command, want := range map[string]int{"api": 1, "migrate": 1, "worker": 3} {
		if got := c.running(command); len(got) != want {
			t.Errorf("services that run berth %s: %v, want %d", command, got, want)
		}
	}
	if got := c.Services["postgres"].Image; got != "postgres:17" {
		t.Errorf("postgres image %q, want postgres:17", got)
	}
}

func TestComposePublishesEachPortOnce(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	owners := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		for _, p := range c.Services[name].published(t) {
			key := p.host + "/" + p.protocol
			if other, taken := owners[key]; taken {
				t.Errorf("%s and %s both publish %s", other, name, key)
			}
			owners[key] = name
			if p.address != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q: with a password in the file it must stay on loopback", name, key, p.address)
			}
		}
	}
}

// TestWorkersAnnounceWhatIsPublished guards the usual way for media in containers to fail: a client is told an address that
// nothing is published on.
func TestWorkersAnnounceWhatIsPublished(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for _, name := range c.running("worker") {
		s := c.Services[name]
		media := listenPort(t, s, "BERTH_MEDIA_LISTEN")
		address, port, err := net.SplitHostPort(s.Environment["BERTH_MEDIA_ANNOUNCE"])
		if err != nil || port != media || !s.publishes(t, address, port, "udp") || !s.publishes(t, address, port, "tcp") {
			t.Errorf("%s listens for media on port %s, announces %q and publishes %v: they must be one address, by UDP and by TCP",
				name, media, s.Environment["BERTH_MEDIA_ANNOUNCE"], s.Ports)
		}

		signaling := listenPort(t, s, "BERTH_SIGNALING_LISTEN")
		u := parseURL(t, s, "BERTH_SIGNALING_URL")
		if u.Scheme != "ws" || u.Path != "/rtc" || u.Port() != signaling || !s.publishes(t, u.Hostname(), u.Port(), "tcp") {
			t.Errorf("%s listens for signaling on port %s, says %s and publishes %v: they must be one address", name, signaling, u, s.Ports)
		}
	}
}

func TestWorkersAreDistinctAndReachableInside(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	api := c.running("api")[0]
	for _, name := range c.running("worker") {
		s := c.Services[name]
		if id := s.Environment["BERTH_WORKER_ID"]; id != name {
			t.Errorf("%s: BERTH_WORKER_ID is %q: give it the name of its service, so that what SQL shows can be killed by name", name, id)
		}
		control := parseURL(t, s, "BERTH_CONTROL_URL")
		if control.Hostname() != name || control.Port() != listenPort(t, s, "BERTH_CONTROL_LISTEN") {
			t.Errorf("%s: control address %s is not its own", name, control)
		}
		second := parseURL(t, s, "BERTH_API_URLS")
		if second.Hostname() != api || second.Port() != listenPort(t, c.Services[api], "BERTH_LISTEN") {
			t.Errorf("%s: %s is not the API's address inside", name, second)
		}
		for _, p := range s.published(t) {
			if p.container == control.Port() {
				t.Errorf("%s publishes its control port %s, which is internal", name, p.container)
			}
		}
		if region := s.Environment["BERTH_REGION"]; region == "" || region != c.Services[api].Environment["BERTH_REGION"] {
			t.Errorf("%s is in region %q, the API in %q", name, region, c.Services[api].Environment["BERTH_REGION"])
		}
	}
}

func TestAPIIsPublishedWhereItSaysItIs(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	for _, name := range c.running("api") {
		s := c.Services[name]
		u := parseURL(t, s, "BERTH_PUBLIC_URL")
		if u.Port() != listenPort(t, s, "BERTH_LISTEN") || !s.publishes(t, u.Hostname(), u.Port(), "tcp") {
			t.Errorf("%s says it is at %s and publishes %v", name, u, s.Ports)
		}
	}
	for _, name := range slices.Concat(c.running("api"), c.running("worker")) {
		origins := strings.Split(c.Services[name].Environment["BERTH_ALLOWED_ORIGINS"], ",")
		if want := c.Services["api"].Environment["BERTH_PUBLIC_URL"]; !slices.Contains(origins, want) {
			t.Errorf("%s allows origins %v, not the dashboard's %s", name, origins, want)
		}
	}
}

func TestServicesStartInOrder(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	migrate := c.Services["migrate"]
	if got := migrate.DependsOn["postgres"].Condition; got != "service_healthy" {
		t.Errorf("migrate waits for postgres with %q, want service_healthy", got)
	}
	if migrate.Restart != "no" {
		t.Errorf("migrate has restart %q: a one-shot that restarts never completes", migrate.Restart)
	}
	for _, name := range slices.Concat(c.running("api"), c.running("worker")) {
		if got := c.Services[name].DependsOn["migrate"].Condition; got != "service_completed_successfully" {
			t.Errorf("%s waits for migrate with %q, want service_completed_successfully", name, got)
		}
	}
	for name, s := range c.Services {
		for other := range s.DependsOn {
			if _, ok := c.Services[other]; !ok {
				t.Errorf("%s depends on %s, which does not exist", name, other)
			}
		}
	}
}

func TestServicesSayWhetherTheyAreHealthy(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	ports := map[string]string{"api": "BERTH_LISTEN", "worker": "BERTH_CONTROL_LISTEN"}
	for command, listen := range ports {
		for _, name := range c.running(command) {
			s := c.Services[name]
			test := s.Healthcheck.Test
			prefix := fmt.Sprintf("http://127.0.0.1:%s/", listenPort(t, s, listen))
			if len(test) != 4 || test[0] != "CMD" || test[2] != "healthcheck" || !strings.HasPrefix(test[3], prefix) {
				t.Errorf("%s: health check %v does not ask the process at %s (the image has no shell and no curl)", name, test, prefix)
			}
		}
	}
	if len(c.Services["postgres"].Healthcheck.Test) == 0 {
		t.Error("postgres has no health check")
	}
	if !c.Services["migrate"].Healthcheck.Disable {
		t.Error("migrate inherits the image's health check, which asks an API")
	}
}

func TestEnvironmentNamesExist(t *testing.T) {
	t.Parallel()
	known := config.Names()
	for name, s := range readCompose(t).Services {
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "BERTH_") && !slices.Contains(known, variable) {
				t.Errorf("%s sets %s, which no process reads", name, variable)
			}
		}
	}
}

func TestEnvironmentIsAccepted(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	checks := map[string]func(environ []string) error{
		"api":     accepts[config.API],
		"worker":  accepts[config.Worker],
		"migrate": accepts[config.Migrate],
	}
	for command, check := range checks {
		for _, name := range c.running(command) {
			var environ []string
			for variable, value := range c.Services[name].Environment {
				environ = append(environ, variable+"="+value)
			}
			if err := check(environ); err != nil {
				t.Errorf("berth %s would not start as service %s: %v", command, name, err)
			}
		}
	}
}

func accepts[P config.Process](environ []string) error {
	_, err := config.Load[P](environ)
	return err
}

func listenPort(t *testing.T, s service, variable string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Environment[variable])
	if err != nil || host != "" && host != "0.0.0.0" {
		t.Errorf("%s=%q: in a container listen on every address, as in \":8080\"", variable, s.Environment[variable])
	}
	return port
}

func parseURL(t *testing.T, s service, variable string) *url.URL {
	t.Helper()
	u, err := url.Parse(s.Environment[variable])
	if err != nil || u.Host == "" {
		t.Fatalf("%s=%q is no URL", variable, s.Environment[variable])
	}
	return u
}
