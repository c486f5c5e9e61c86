package backplane_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/berthdev/berth/internal/testkit"
)

// network is a TCP proxy in front of a database. On it packets can vanish without anybody being told, and notifications.
type network struct {
	listener net.Listener
	target   string
	url      string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the rest
	wires map[*wire]bool
	down  bool // nobody gets through
	muted bool // no notification gets through
}

// wire is one connection through the network.
type wire struct {
	client, server net.Conn

	mu     sync.Mutex // guards the rest
	frozen bool
}

// newNetwork leads to db by its url, in clear.
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
	target.Host, target.RawQuery = listener.Addr().String(), "sslmode=disable"
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
		n.mu.Lock()
		if err != nil || n.down {
			n.mu.Unlock()
			_ = client.Close() // which tells it
			continue
		}
		w := &wire{client: client, server: server}
		n.wires[w] = true
		n.mu.Unlock()
		n.running.Go(func() { w.carry(server, client) })
		n.running.Go(func() { n.answer(w) })
	}
}

// carry copies what the client says. A frozen wire swallows it, its end too.
func (w *wire) carry(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		w.mu.Lock()
		frozen := w.frozen
		w.mu.Unlock()
		if err == nil && !frozen {
			_, err = to.Write(buffer[:size])
		}
		switch {
		case err != nil && frozen:
			return
		case err != nil:
			w.close()
			return
		}
	}
}

// answer copies what the server says, message by message.
func (n *network) answer(w *wire) {
	from := bufio.NewReader(w.server)
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(from, head); err != nil {
			break
		}
		message := slices.Grow(head, int(binary.BigEndian.Uint32(head[1:])))[:1+binary.BigEndian.Uint32(head[1:])]
		if _, err := io.ReadFull(from, message[5:]); err != nil {
			break
		}
		n.mu.Lock()
		muted := n.muted
		n.mu.Unlock()
		w.mu.Lock()
		frozen := w.frozen
		w.mu.Unlock()
		const notification = 'A'
		if frozen || muted && head[0] == notification {
			continue
		}
		if _, err := w.client.Write(message); err != nil {
			break
		}
	}
	w.close()
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

// mute swallows the notifications of all connections, or no longer.
func (n *network) mute(muted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted = muted
}

// cut ends all connections, and lets nobody through until it is called with false.
func (n *network) cut(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for w := range n.wires {
		w.close()
	}
	clear(n.wires)
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
