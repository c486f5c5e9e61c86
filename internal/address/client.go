package address

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client is whom a request counts for: the right-most address on its way that is no trusted proxy. What is left of that
// in X-Forwarded-For was written by the client, or by proxies that nobody vouches for. IPv6 counts by /64, since one host
// has that many. Without an address the result is invalid, which is one client too.
func Client(r *http.Request, trusted []netip.Prefix) netip.Addr {
	remote, _ := netip.ParseAddrPort(r.RemoteAddr)
	address := remote.Addr().Unmap()
	for _, field := range slices.Backward(r.Header["X-Forwarded-For"]) {
		for list, more := field, true; more; {
			if !isTrusted(address, trusted) {
				return network(address)
			}
			var hop string
			list, hop, more = cutLast(list)
			next, ok := parseHop(hop)
			if !ok {
				return network(address) // "unknown", or nonsense: its writer answers for it
			}
			address = next
		}
	}
	return network(address)
}

func isTrusted(address netip.Addr, trusted []netip.Prefix) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(address) })
}

// cutLast splits the last item off a list.
func cutLast(list string) (before, last string, found bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// parseHop reads one item of X-Forwarded-For, which some proxies write with a port.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if address, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return address.Unmap().WithZone(""), true
	}
	both, err := netip.ParseAddrPort(text)
	return both.Addr().Unmap().WithZone(""), err == nil
}

// network is what one client is taken to hold: an address of IPv4, a /64 of IPv6.
func network(address netip.Addr) netip.Addr {
	if !address.Is6() {
		return address
	}
	prefix, _ := address.WithZone("").Prefix(64) // 64 bits are no error for IPv6
	return prefix.Addr()
}
