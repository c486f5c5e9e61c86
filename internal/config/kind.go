package config

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// kind names the form of a value: the tag kind, or what the Go type implies.
type kind string

const (
	kindText         kind = ""
	kindInt          kind = "int"
	kindDuration     kind = "duration"
	kindBool         kind = "bool"
	kindRate         kind = "rate"
	kindAnnounce     kind = "announce"
	kindAddress      kind = "address"
	kindHTTPURL      kind = "http_url"
	kindWSURL        kind = "ws_url"
	kindTURNURL      kind = "turn_url"
	kindTURNSecrets  kind = "turn_secrets"
	kindPostgres     kind = "postgres"
	kindPostgresURLs kind = "postgres_list"
	kindOrigin       kind = "origin"
	kindID           kind = "id"
	kindRegion       kind = "region"
	kindLabel        kind = "label"
	kindSecret       kind = "secret"
	kindDirectory    kind = "directory"
	kindNetwork      kind = "network"
)

var (
	hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,252})$`)
	turnForm = regexp.MustCompile(`^((turns?:[^/?#@\s]+(\?transport=(udp|tcp))?)|(stuns?:[^/?#@\s]+))$`)
)

// kind returns the form of the variable's value.
func (v variable) kind() kind {
	switch v.field.Interface().(type) {
	case int:
		return kindInt
	case time.Duration:
		return kindDuration
	case bool:
		return kindBool
	case Rate:
		return kindRate
	case Announce:
		return kindAnnounce
	default:
		return kind(v.tag.Get("kind"))
	}
}

// want describes an acceptable value, to be read after "is not" and "give".
func (v variable) want() string {
	if choices := v.choices(); len(choices) > 0 {
		return joinOr(choices)
	}
	switch k := v.kind(); k {
	case kindInt:
		return "a whole number from " + v.tag.Get("min") + " to " + v.tag.Get("max") + ", in digits without sign or leading zero"
	case kindRate:
		return "a whole number per second from " + v.tag.Get("min") + " to " + v.tag.Get("max") + ", such as " + v.tag.Get("default")
	case kindDuration:
		return "a duration with a unit, such as " + v.tag.Get("default") + ", from " + v.tag.Get("min") + " to " + v.tag.Get("max") + v.inSteps()
	default:
		return k.want()
	}
}

// inSteps describes the tag step.
func (v variable) inSteps() string {
	switch v.tag.Get("step") {
	case "1s":
		return ", in whole seconds"
	case "1ms":
		return ", in whole milliseconds"
	default:
		return ""
	}
}

// want describes the kinds that need no limits.
func (k kind) want() string {
	return map[kind]string{
		kindText:         "a text",
		kindBool:         "true or false",
		kindAnnounce:     "an IP address of one host, or one with a port, such as 203.0.113.7 or 203.0.113.7:3478",
		kindAddress:      "a host and port, such as 127.0.0.1:8080, or :8080 for all addresses",
		kindHTTPURL:      "an http:// or https:// URL without user, query or trailing slash",
		kindWSURL:        "a ws:// or wss:// URL with its path, such as wss://w1.example.com/rtc, without user, query or trailing slash",
		kindTURNURL:      "a stun:, turn: or turns: URL such as turn:turn.example.com:3478?transport=udp",
		kindTURNSecrets:  "one or two shared secrets, the signing one first",
		kindPostgres:     "a URL such as postgres://user:password@host:5432/database, with special characters percent-encoded",
		kindPostgresURLs: "a URL such as postgres://user:password@host:5432/database, or several with commas between, each with one host",
		kindOrigin:       "an exact origin as browsers send it, such as https://app.example.com",
		kindID:           "an id: a letter or digit, then up to 127 letters, digits or . _ ~ -",
		kindRegion:       "a region: a lower-case letter or digit, then up to 31 of these or -",
		kindLabel:        "a label such as gpu=a10: a name and a value, each a letter or digit, then up to 62 letters, digits or . _ / - (in a value also ~ or +)",
		kindSecret:       "a secret without white space",
		kindDirectory:    "an absolute path of a directory, such as /usr/lib/postgresql/17/bin",
		kindNetwork:      "an IP address or CIDR prefix, such as 10.0.0.0/8 or 2001:db8::/32",
	}[k]
}

// accepts reports whether one item has the form of the kind.
func (k kind) accepts(item string) bool {
	switch k {
	case kindAddress:
		return isAddress(item)
	case kindHTTPURL:
		return isURL(item, "http", "https")
	case kindWSURL:
		return isURL(item, "ws", "wss") && hasPath(item)
	case kindTURNURL:
		return turnForm.MatchString(item)
	case kindPostgres, kindPostgresURLs:
		return isPostgresURL(item)
	case kindOrigin:
		return isOrigin(item)
	case kindID:
		return berth.ValidID(item)
	case kindRegion:
		return berth.ValidRegion(item)
	case kindLabel:
		return isLabel(item)
	case kindDirectory:
		return filepath.IsAbs(item)
	case kindNetwork:
		_, ok := parseNetwork(item)
		return ok
	case kindSecret, kindTURNSecrets:
		return !strings.ContainsAny(item, " \t\r\n")
	default:
		return true
	}
}

// isAddress accepts "host:port" for a listener: an empty host is every address.
func isAddress(item string) bool {
	host, port, err := net.SplitHostPort(item)
	if err != nil || !isDecimal(port) {
		return false
	}
	if n, err := strconv.Atoi(port); err != nil || n > 65535 {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "" || hostForm.MatchString(host)
}

// isLabel accepts "name=value".
func isLabel(item string) bool {
	name, value, _ := strings.Cut(item, "=")
	return berth.ValidLabelName(name) && berth.ValidLabelValue(value)
}

// isURL accepts a URL to which paths or a query can be appended.
func isURL(item string, schemes ...string) bool {
	u, err := url.Parse(item)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(item, "#") {
		return false
	}
	return (u.Scheme == schemes[0] || u.Scheme == schemes[1]) && !strings.HasSuffix(item, "/")
}

// hasPath tells whether a URL leads further than to its host.
func hasPath(item string) bool {
	u, err := url.Parse(item)
	return err == nil && u.Path != ""
}

// isPostgresURL checks no more than what a mistyped URL gets wrong; the driver does the rest.
func isPostgresURL(item string) bool {
	u, err := url.Parse(item)
	if err != nil || u.Fragment != "" {
		return false
	}
	_, err = url.ParseQuery(u.RawQuery)
	return err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") && (u.Host != "" || u.Query().Has("host"))
}

// isOrigin accepts what a browser sends as Origin: lower case, no path, no default port.
func isOrigin(item string) bool {
	u, err := url.Parse(item)
	if err != nil || !isURL(item, "http", "https") || u.Path != "" || item != strings.ToLower(item) {
		return false
	}
	isDefault := (u.Scheme == "http" && u.Port() == "80") || (u.Scheme == "https" && u.Port() == "443")
	return !isDefault && !strings.HasSuffix(item, ":") && !strings.Contains(item, "*")
}

// joinOr writes "a, b or c".
func joinOr(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
