package jobs_test

import (
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"
)

// link is a TCP proxy in front of a database, which can be frozen: a process that reaches its database through it is then
// as good as paused, as far as anybody else can tell.
type link struct {
	t        *testing.T
	listener net.Listener
	target   string
	url      string
	running  sync.WaitGroup
	over     chan struct{}
	ends     sync.Once

	mu     sync.Mutex // guards the rest
	conns  map[net.Conn]bool
	frozen bool
}

// newLink leads to the database of address.
func newLink(t *testing.T, address string) *link {
	t.Helper()
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, listener: listener, target: target.Host, over: make(chan struct{}), conns: map[net.Conn]bool{}}
	target.Host = listener.Addr().String()
	l.url = target.String()
	l.running.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close() // which tells it
			continue
		}
		l.mu.Lock()
		l.conns[client], l.conns[server] = true, true
		l.mu.Unlock()
		l.running.Go(func() { l.carry(server, client) })
		l.running.Go(func() { l.carry(client, server) })
	}
}

// carry copies one direction. What arrives while the link is frozen is lost, and nobody is told.
func (l *link) carry(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }() // the second direction finds them closed
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil && !l.isFrozen() {
			return
		}
		if err != nil { // the peer of a frozen process does not hear of it
			<-l.over
			return
		}
		if l.isFrozen() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) isFrozen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frozen
}

func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = true
}

// close is idempotent.
func (l *link) close() {
	l.ends.Do(func() { close(l.over) })
	if err := l.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		l.t.Error(err)
	}
	l.mu.Lock()
	for conn := range l.conns {
		_ = conn.Close() // which ends its copy
	}
	l.mu.Unlock()
	l.running.Wait()
}
