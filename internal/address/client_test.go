package address

import (
	"net/http"
	"net/netip"
	"testing"
)

func TestClientAddressIsTheRightmostThatIsNoProxy(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	for _, tc := range []struct {
		remote string
		header []string
		want   string
	}{
		{"198.51.100.7:1234", nil, "198.51.100.7"},
		{"198.51.100.7:1234", []string{"203.0.113.9"}, "198.51.100.7"}, // nobody vouches for it
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},            // the client wrote 1.1.1.1
		{"10.0.0.1:1", []string{"1.1.1.1", "203.0.113.9,10.0.0.2"}, "203.0.113.9"}, // two fields, two proxies
		{"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1:1", []string{"1.1.1.1, unknown"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"1.1.1.1, "}, "10.0.0.1"},
		{"10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"10.0.0.1:1", []string{"[2001:db8:2:3:4:5:6:7]:4711"}, "2001:db8:2:3::"},
		{"10.0.0.1:1", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		{"[::ffff:10.0.0.1]:1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"[2001:db8:1::1]:1", []string{"2001:db8:2:3:4:5:6:7"}, "2001:db8:2:3::"},
		{"[fe80::1%eth0]:1", nil, "fe80::"},
		{"@", []string{"203.0.113.9"}, "invalid IP"},
	} {
		r := &http.Request{RemoteAddr: tc.remote, Header: http.Header{"X-Forwarded-For": tc.header}}
		if got := Client(r, trusted).String(); got != tc.want {
			t.Errorf("%s %q: %s, want %s", tc.remote, tc.header, got, tc.want)
		}
	}
}
