package signaling

import "slices"

// standing is what is known of one peer of a call.
type standing struct {
	connection string   // the newest that was heard of
	at         int64    // when the database admitted it, by its clock in microseconds; zero: not known
	over       []string // connections that are heard no more, maxOver at most, the last one last
	doubted    string   // a connection that said that it is there, and looks older than the newest
}

// maxOver bounds how many connections of a peer are remembered to be over. Late words come within seconds.
const maxOver = 8

// age is how a connection stands to those that are known.
type age int

const (
	newest age = iota
	older      // by its time
	over       // it was lost, or replaced, whatever its time
)

// of is the standing of a peer. It is called with mu held.
func (c *call) of(peer string) *standing {
	s := c.known[peer]
	if s == nil {
		s = &standing{}
		c.known[peer] = s
	}
	return s
}

// meet notes a connection of a peer unless it is not the newest. It is called with mu held.
func (c *call) meet(peer, connection string, at int64) age {
	s := c.of(peer)
	switch {
	case slices.Contains(s.over, connection):
		return over
	case s.connection == connection:
		return newest
	case s.at > at:
		return older
	}
	c.replace(s, connection, at)
	return newest
}

// replace notes a connection in the place of the last one, which is over. It is called with mu held.
func (c *call) replace(s *standing, connection string, at int64) {
	c.finish(s, s.connection)
	s.connection, s.at = connection, at
	c.changes++
}

// finish notes that a connection is over, for good: whoever was lost comes back by another. It is called with mu held.
func (c *call) finish(s *standing, connection string) {
	if connection == "" || slices.Contains(s.over, connection) {
		return
	}
	if len(s.over) == maxOver {
		s.over = slices.Delete(s.over, 0, 1)
	}
	s.over = append(s.over, connection)
	c.changes++
}
