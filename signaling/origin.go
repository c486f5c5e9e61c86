package signaling

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// originAllowed reports whether the request's page may connect. The list is exact: scheme, host and port as the
// browser sends them (RFC 6454 section 6.2). No Origin header means that no browser asks. The request's own host is
// not allowed by itself, since a rebound DNS name would pass.
func originAllowed(r *http.Request, allowed []string, loopback bool) bool {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 {
		return false
	}
	return slices.Contains(allowed, origins[0]) || loopback && isLoopback(origins[0])
}

func isLoopback(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return false
	}
	host := u.Hostname()
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
