package postgres_test

import (
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/berthdev/berth/internal/testkit"
)

// network is a TCP proxy in front of a database, on which answers can be lost.
type network struct {
	t        *testing.T
	listener net.Listener
	target   string
	url      string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the rest
	conns map[*wire]bool
}

// wire is one connection through the network.
type wire struct {
	client, server net.Conn

	mu     sync.Mutex // guards the rest
	deaf   bool       // what the server answers is lost, and the connection with the first loss
	frozen bool       // packets vanish, and nobody is told
}

// newNetwork leads to db by URL.
func newNetwork(t *testing.T, db *testkit.DB) *network {
	t.Helper()
	target, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{t: t, listener: listener, target: target.Host, conns: map[*wire]bool{}}
	target.Host = listener.Addr().String()
	n.url = target.String()
	n.running.Go(n.accept)
	t.Cleanup(n.close)
	return n
}

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", n.target)
		if err != nil {
			_ = client.Close() // which tells it
			continue
		}
		w := &wire{client: client, server: server}
		n.mu.Lock()
		n.conns[w] = true
		n.mu.Unlock()
		n.running.Go(func() { w.carry(server, client, false) })
		n.running.Go(func() { w.carry(client, server, true) })
	}
}

// carry copies one direction until it ends, or until what it carries is lost.
func (w *wire) carry(to, from net.Conn, answers bool) {
	defer w.close()
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		deaf, frozen := w.deaf && answers, w.frozen
		w.mu.Unlock()
		switch {
		case deaf:
			return
		case frozen:
			continue
		}
		if _, err := to.Write(buffer[:size]); err != nil {
			return
		}
	}
}

func (w *wire) close() {
	_, _ = w.client.Close(), w.server.Close() // the second direction finds them closed
}

// each changes every connection that there is; later ones are not concerned.
func (n *network) each(change func(w *wire)) (changed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.conns {
		w.mu.Lock()
		change(w)
		w.mu.Unlock()
		changed++
	}
	return changed
}

func (n *network) close() {
	if err := n.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		n.t.Error(err)
	}
	n.mu.Lock()
	for w := range n.conns {
		w.close()
	}
	n.mu.Unlock()
	n.running.Wait()
}
