package config

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// maxRate bounds [Rate]; no process accepts more in a second.
const maxRate = 1_000_000

// Rate is a whole number of events per second, written "2000/s".
type Rate int

// UnmarshalText reads "N/s" with 0 <= N <= 1,000,000.
func (r *Rate) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "/s")
	if !ok || !isDecimal(number) {
		return errors.New("not a rate")
	}
	n, err := strconv.Atoi(number)
	if err != nil || n > maxRate {
		return errors.New("rate out of range")
	}
	*r = Rate(n)
	return nil
}

// String returns the form that UnmarshalText reads.
func (r Rate) String() string { return strconv.Itoa(int(r)) + "/s" }

// Announce is the address under which clients reach a worker's media port. Port 0 means the
// port that the worker listens on. The zero Announce means "not set".
type Announce struct {
	Addr netip.Addr
	Port uint16
}

// UnmarshalText reads an IP address, or an IP address and a port as behind a UDP balancer.
func (a *Announce) UnmarshalText(text []byte) error {
	if addr, err := netip.ParseAddr(string(text)); err == nil {
		return a.set(addr, 0)
	}
	both, err := netip.ParseAddrPort(string(text))
	if err != nil || both.Port() == 0 {
		return errors.New("not an address")
	}
	return a.set(both.Addr(), both.Port())
}

// set refuses addresses that no client can send to.
func (a *Announce) set(addr netip.Addr, port uint16) error {
	addr = addr.Unmap()
	if addr.IsUnspecified() || addr.IsMulticast() || addr.Zone() != "" {
		return errors.New("not an address of one host")
	}
	*a = Announce{Addr: addr, Port: port}
	return nil
}

// IsSet reports whether an address was given.
func (a Announce) IsSet() bool { return a.Addr.IsValid() }

// String returns the form that UnmarshalText reads, or nothing if not set.
func (a Announce) String() string {
	switch {
	case !a.IsSet():
		return ""
	case a.Port == 0:
		return a.Addr.String()
	default:
		return netip.AddrPortFrom(a.Addr, a.Port).String()
	}
}

// LabelMap returns labels like "name=value" by name. They must have been validated.
func LabelMap(labels []string) map[string]string {
	values := make(map[string]string, len(labels))
	for _, label := range labels {
		name, value, _ := strings.Cut(label, "=")
		values[name] = value
	}
	return values
}

// Prefixes returns networks as prefixes; one address is a prefix of its whole length. They must have been validated.
func Prefixes(networks []string) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(networks))
	for _, network := range networks {
		if prefix, ok := parseNetwork(network); ok {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// parseNetwork reads an address or a CIDR prefix. Bits behind the prefix are refused: 10.1.2.3/8 is a slip of the hand.
func parseNetwork(text string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), addr.Zone() == ""
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix, err == nil && prefix == prefix.Masked() && !prefix.Addr().Is4In6()
}

// isDecimal accepts what people mean by a whole number: 0, or digits without a leading zero.
func isDecimal(text string) bool {
	if text == "" || (text[0] == '0' && text != "0") {
		return false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
