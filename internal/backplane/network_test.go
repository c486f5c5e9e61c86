package backplane_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/berthdev/berth/internal/testkit"
)

// network is a TCP proxy in front of a database, on which packets can vanish without anybody being told.
type network struct {
	listener net.Listener
	target   string
	url      string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the rest
	wires map[*wire]bool
}

// wire is one connection through the network.
type wire struct {
	client, server net.Conn

	mu     sync.Mutex // guards the rest
	frozen bool
}

// newNetwork leads to db by its url.
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
	n := &network{listener: listener, target: target.Host, wires: map[*wire]bool{}}
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
		n.wires[w] = true
		n.mu.Unlock()
		n.running.Go(func() { w.carry(server, client) })
		n.running.Go(func() { w.carry(client, server) })
	}
}

// carry copies one direction until it ends. A frozen wire swallows what it carries.
func (w *wire) carry(to, from net.Conn) {
	defer w.close()
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		frozen := w.frozen
		w.mu.Unlock()
		if frozen {
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

// freeze swallows the packets of all connections that there are, and returns how many. Later ones are not concerned.
func (n *network) freeze() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w := range n.wires {
		w.mu.Lock()
		w.frozen = true
		w.mu.Unlock()
	}
	return len(n.wires)
}

func (n *network) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	for w := range n.wires {
		w.close()
	}
	n.mu.Unlock()
	n.running.Wait()
}
