package address

import (
	"net/netip"
	"testing"
)

func TestAddressesThatWereNotSeenForLongAreForgotten(t *testing.T) {
	t.Parallel()
	const most = 1000
	table := NewTable[int](most)
	seen := func(address netip.Addr) (times int) {
		table.Change(address, func(n int) int {
			times = n
			return n + 1
		})
		return times
	}
	often, once := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8")
	seen(once)
	address := netip.MustParseAddr("2001:db8::")
	for i := range 3 * most {
		if i%100 == 0 && seen(often) != i/100 {
			t.Fatalf("an address that comes again and again was forgotten after %d others", i)
		}
		seen(address)
		address = address.Next()
	}
	if n := len(table.recent) + len(table.older); n > 2*most {
		t.Errorf("%d addresses are remembered", n)
	}
	if n := seen(once); n != 0 {
		t.Errorf("an address that nobody saw for long has the value %d", n)
	}
}
