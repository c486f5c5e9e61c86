package config

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Validate reports everything that is wrong: ranges, formats and rules between variables. The
// error joins one [Problem] for each variable.
func (c API) Validate() error { return validate(&c) }

// Validate is as [API.Validate].
func (c Worker) Validate() error { return validate(&c) }

// Validate is as [API.Validate].
func (c Migrate) Validate() error { return validate(&c) }

// Validate is as [API.Validate].
func (c Tool) Validate() error { return validate(&c) }

// Validate is as [API.Validate].
func (c Local) Validate() error { return validate(&c) }

// validate checks the struct that spec points to.
func validate(spec any) error {
	p := &problems{}
	check(spec, p)
	return p.err()
}

// check looks at each variable alone and then at rules between them.
func check(spec any, p *problems) {
	for _, v := range variables(spec) {
		checkPresence(v, p)
		checkItems(v, p)
		checkRange(v, p)
	}
	if r, ok := spec.(interface{ rules(p *problems) }); ok {
		r.rules(p)
	}
}

// checkPresence asks for what is required. A text that has a default can only be missing from a
// struct made by hand, and is required too.
func checkPresence(v variable, p *problems) {
	isText := v.field.Kind() == reflect.String
	required := v.tag.Get("required") == "true" || (isText && v.tag.Get("default") != "")
	if !required || !v.field.IsZero() {
		return
	}
	remedy := "give " + v.want()
	if v.isSecret() {
		remedy += ", or put it in a file named by " + v.name + fileSuffix
	}
	p.add(v.name, "is not set", remedy)
}

// checkItems checks the form of texts.
func checkItems(v variable, p *problems) {
	for _, item := range items(v) {
		if !v.kind().accepts(item) {
			p.add(v.name, "is not "+v.want(), "give a value of that form")
		}
	}
	if s, ok := reflect.TypeAssert[string](v.field); ok && len(v.choices()) > 0 && !hasForm(v, s) {
		p.add(v.name, "is not "+v.want(), "give one of these")
	}
}

// items returns the texts that a kind can be asked about; empty ones are "not set".
func items(v variable) []string {
	switch value := v.field.Interface().(type) {
	case string:
		if value != "" {
			return []string{value}
		}
	case []string:
		return value
	case Secret:
		if value.IsSet() {
			return []string{value.Reveal()}
		}
	case Secrets:
		return value.Reveal()
	}
	return nil
}

// checkRange applies the tags min, max and step. The tags are constants that a test parses.
func checkRange(v variable, p *problems) {
	if v.tag.Get("min") == "" {
		return
	}
	inRange := true
	switch value := v.field.Interface().(type) {
	case int:
		inRange = value >= number(v, "min") && value <= number(v, "max")
	case Rate:
		inRange = value >= perSecond(v, "min") && value <= perSecond(v, "max")
	case time.Duration:
		inRange = value >= duration(v, "min") && value <= duration(v, "max") && isStep(value, duration(v, "step"))
	}
	if !inRange {
		p.add(v.name, "is out of range", "give "+v.want())
	}
}

func isStep(value, step time.Duration) bool { return step == 0 || value%step == 0 }

func number(v variable, key string) int {
	n, _ := strconv.Atoi(v.tag.Get(key)) // a test proves that every tag parses
	return n
}

func perSecond(v variable, key string) Rate {
	var r Rate
	_ = r.UnmarshalText([]byte(v.tag.Get(key))) // as above
	return r
}

func duration(v variable, key string) time.Duration {
	d, _ := time.ParseDuration(v.tag.Get(key)) // as above; an absent tag is zero
	return d
}

func (c *API) rules(p *problems) {
	c.Backplane.rules(p)
	c.TURN.rules(p)
	c.Reaper.rules(p, c.Detection.Lease)
	derivable(p, "BERTH_PUBLIC_URL", c.HTTP.PublicURL, "BERTH_LISTEN", c.HTTP.Listen)
}

func (c *Worker) rules(p *problems) {
	c.Backplane.rules(p)
	c.Identity.rules(p)
	c.TURN.rules(p)
	c.Renewal.rules(p, c.Detection.Lease)
	derivable(p, "BERTH_SIGNALING_URL", c.Signaling.URL, "BERTH_SIGNALING_LISTEN", c.Signaling.Listen)
	derivable(p, "BERTH_CONTROL_URL", c.Control.URL, "BERTH_CONTROL_LISTEN", c.Control.Listen)
}

func (c *Migrate) rules(p *problems) { c.Backplane.rules(p) }

// mostBackplanes keeps a process's connections few.
const mostBackplanes = 32

// rules keeps databases few, and each named once: named twice, it would carry the topics of two in the same tables.
func (b Backplane) rules(p *problems) {
	if p.has("BERTH_BACKPLANE_URLS") {
		return
	}
	urls := b.URLs.Reveal()
	slices.Sort(urls)
	switch {
	case len(urls) > mostBackplanes:
		p.add("BERTH_BACKPLANE_URLS", "names more than "+strconv.Itoa(mostBackplanes)+" databases", "give fewer")
	case len(slices.Compact(urls)) < len(b.URLs):
		p.add("BERTH_BACKPLANE_URLS", "names a database twice", "give each once")
	}
}

// rules keeps relays and their secrets together: either alone does nothing, silently.
func (t TURN) rules(p *problems) {
	if p.has("BERTH_TURN_URLS") {
		return
	}
	relays := 0
	for _, u := range t.URLs {
		if strings.HasPrefix(u, "turn") {
			relays++
		}
	}
	switch {
	case len(t.Secrets) > 2:
		p.add("BERTH_TURN_SECRETS", "holds more than two secrets", "give "+kindTURNSecrets.want())
	case relays > 0 && len(t.Secrets) == 0:
		p.add("BERTH_TURN_SECRETS", "is not set, but BERTH_TURN_URLS names a relay", "give "+kindTURNSecrets.want())
	case relays == 0 && len(t.Secrets) > 0:
		p.add("BERTH_TURN_URLS", "names no relay, but BERTH_TURN_SECRETS is set", "give a turn: or turns: URL, or unset the secrets")
	}
}

// rules keeps labels few, and each name to one value.
func (i Identity) rules(p *problems) {
	if p.has("BERTH_WORKER_LABELS") {
		return
	}
	switch {
	case len(i.Labels) > berth.MaxWorkerLabels:
		p.add("BERTH_WORKER_LABELS", "has more than "+strconv.Itoa(berth.MaxWorkerLabels)+" labels", "leave out what no selector asks for")
	case len(LabelMap(i.Labels)) < len(i.Labels):
		p.add("BERTH_WORKER_LABELS", "has two labels of one name", "give each name once")
	}
}

// rules keeps a worker's numbers in an order in which they can work.
func (r Renewal) rules(p *problems, lease time.Duration) {
	if p.has("BERTH_LEASE") || p.has("BERTH_RENEW_INTERVAL") {
		return
	}
	shorter(p, "BERTH_LEASE", 2*r.Interval, lease, "is too short: one lost renewal would cost the lease",
		"give more than twice BERTH_RENEW_INTERVAL, or lower that")
	shorter(p, "BERTH_HOLD_LIMIT", lease, r.HoldLimit, "is not longer than the lease", "give more than BERTH_LEASE, or lower that")
}

// leastSentinelLook keeps a mistyped number from being a load on the database.
const leastSentinelLook = 20 * time.Millisecond

// rules does the same for the reaper.
func (r Reaper) rules(p *problems, lease time.Duration) {
	if p.has("BERTH_LEASE") {
		return
	}
	shorter(p, "BERTH_CONFIRM_DELAY", r.ConfirmDelay, lease, "is not shorter than the lease", "give less than BERTH_LEASE, or raise that")
	shorter(p, "BERTH_REAPER_TICK", r.Tick, lease, "is not shorter than the lease", "give less than BERTH_LEASE, or raise that")
	if !p.has("BERTH_SENTINEL_LOOK") && r.Sentinel > 0 && r.Sentinel < leastSentinelLook {
		p.add("BERTH_SENTINEL_LOOK", "is too short to be kept", "give at least "+leastSentinelLook.String()+", or 0s for no looks at all")
	}
	shorter(p, "BERTH_PAUSE_LIMIT", lease, r.PauseLimit, "is not longer than the lease", "give more than BERTH_LEASE, or lower that")
}

// shorter reports variable unless small < large.
func shorter(p *problems, variable string, small, large time.Duration, reason, remedy string) {
	if small >= large {
		p.add(variable, reason, remedy)
	}
}

// derivable asks for a URL if the listener names no single address to make one from.
func derivable(p *problems, variable, configured, listener, address string) {
	host, _, err := net.SplitHostPort(address)
	if configured != "" || err != nil {
		return
	}
	addr, err := netip.ParseAddr(host)
	if host == "" || (err == nil && addr.IsUnspecified()) {
		p.add(variable, "is not set, and "+listener+" listens on all addresses, so that it cannot be derived",
			"give the URL that reaches this process, or listen on one address")
	}
}
