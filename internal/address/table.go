package address

import (
	"net/netip"
	"sync"
)

// Table keeps a value for each address. Its memory is bounded: when a generation is full, the one before is forgotten, so
// that an address which nobody saw for that long begins with the zero value again. It is safe for concurrent use.
type Table[V any] struct {
	most int

	mu            sync.Mutex // guards the rest; held while a value is changed
	recent, older map[netip.Addr]V
}

// NewTable makes a table whose generations remember most addresses each.
func NewTable[V any](most int) *Table[V] {
	return &Table[V]{most: most, recent: map[netip.Addr]V{}}
}

// Change replaces the value of an address, zero at first, by what change makes of it. change must not block, nor use the
// table.
func (t *Table[V]) Change(address netip.Addr, change func(V) V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, known := t.recent[address]
	if !known {
		value = t.older[address]
		if len(t.recent) >= t.most {
			t.recent, t.older = map[netip.Addr]V{}, t.recent
		}
	}
	t.recent[address] = change(value)
}
