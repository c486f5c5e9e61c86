package media

import (
	"net"
	"sync"
)

// boundedListener caps the connections of ICE-TCP: beyond the limit a new one is closed at once. It can
// close them all, which Pion's TCP mux cannot do before their first packet.
type boundedListener struct {
	net.Listener
	limit int

	mu    sync.Mutex
	conns map[*boundedConn]struct{}
	over  bool
}

func newBoundedListener(l net.Listener, limit int) *boundedListener {
	return &boundedListener{Listener: l, limit: limit, conns: make(map[*boundedConn]struct{})}
}

// Accept returns the next connection within the limit.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if bounded := l.admit(conn); bounded != nil {
			return bounded, nil
		}
		_ = conn.Close()
	}
}

func (l *boundedListener) admit(conn net.Conn) *boundedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || len(l.conns) >= l.limit {
		return nil
	}
	bounded := &boundedConn{Conn: conn, listener: l}
	l.conns[bounded] = struct{}{}
	return bounded
}

// closeConns closes what is open and admits nothing more.
func (l *boundedListener) closeConns() {
	l.mu.Lock()
	l.over = true
	open := make([]*boundedConn, 0, len(l.conns))
	for conn := range l.conns {
		open = append(open, conn)
	}
	l.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// boundedConn gives its place back when closed.
type boundedConn struct {
	net.Conn
	listener *boundedListener
}

// Close closes the connection; closing twice is harmless.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
