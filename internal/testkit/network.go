package testkit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// Network is a TCP proxy in front of a database. On it packets can vanish without anybody being told, answers can be lost,
// and nobody may read what the server sends.
type Network struct {
	// URL leads to the database through the network, in clear.
	URL string

	t        testing.TB
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex // guards the rest
	wires map[*Wire]bool
	down  bool // nobody gets through
	muted bool // no notification gets through
}

// Wire is one connection through a Network.
type Wire struct {
	client, server net.Conn
	closed         chan struct{}
	closing        sync.Once

	mu      sync.Mutex // guards the rest
	deaf    bool
	frozen  bool
	stalled chan struct{} // closed when it is read again; nil: it is read
}

// NewNetwork makes a network that leads to db, and ends with the test.
func NewNetwork(t testing.TB, db *DB) *Network {
	t.Helper()
	target, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Network{t: t, listener: listener, target: target.Host, wires: map[*Wire]bool{}}
	target.Host, target.RawQuery = listener.Addr().String(), "sslmode=disable"
	n.URL = target.String()
	n.running.Go(n.accept)
	t.Cleanup(n.close)
	return n
}

func (n *Network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(n.t.Context(), "tcp", n.target)
		n.mu.Lock()
		if err != nil || n.down {
			n.mu.Unlock()
			_ = client.Close() // which tells it
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		w := &Wire{client: client, server: server, closed: make(chan struct{})}
		n.wires[w] = true
		n.mu.Unlock()
		n.running.Go(w.carry)
		n.running.Go(func() { n.answer(w) })
	}
}

// carry copies what the client says. A frozen wire swallows it, its end too.
func (w *Wire) carry() {
	buffer := make([]byte, 32<<10)
	for {
		size, err := w.client.Read(buffer)
		_, frozen := w.state()
		if err == nil && !frozen {
			_, err = w.server.Write(buffer[:size])
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
func (n *Network) answer(w *Wire) {
	defer w.close()
	from := bufio.NewReaderSize(w.server, 4<<10)
	for {
		message, err := readMessage(from)
		if err != nil {
			return
		}
		deaf, frozen := w.state()
		const notification = 'A'
		switch {
		case deaf:
			return
		case frozen || n.mutes() && message[0] == notification:
			continue
		}
		if _, err := w.client.Write(message); err != nil {
			return
		}
		w.await()
	}
}

// readMessage reads one message of Postgres' protocol.
func readMessage(from io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	size := 1 + int(binary.BigEndian.Uint32(head[1:]))
	message := slices.Grow(head, size)[:size]
	_, err := io.ReadFull(from, message[len(head):])
	return message, err
}

func (n *Network) mutes() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.muted
}

func (w *Wire) state() (deaf, frozen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deaf, w.frozen
}

// await waits while the wire is stalled.
func (w *Wire) await() {
	w.mu.Lock()
	stalled := w.stalled
	w.mu.Unlock()
	if stalled == nil {
		return
	}
	select {
	case <-stalled:
	case <-w.closed:
	}
}

// Deafen loses what the server answers from now on, and the connection with the first loss.
func (w *Wire) Deafen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = true
}

// Freeze lets packets vanish, and nobody is told.
func (w *Wire) Freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = true
}

// Stall stops reading what the server sends, after its next message, as a process does that is stopped. What fits into buffers
// on the way is taken.
func (w *Wire) Stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stalled == nil {
		w.stalled = make(chan struct{})
	}
}

func (w *Wire) close() {
	w.closing.Do(func() {
		close(w.closed)
		_, _ = w.client.Close(), w.server.Close() // whoever reads finds them closed
	})
}

// Wires are the connections that there were, oldest or not: those that ended are among them, on which nothing has an effect.
func (n *Network) Wires() []*Wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	var wires []*Wire
	for w := range n.wires {
		wires = append(wires, w)
	}
	return wires
}

// Freeze freezes all connections that there are, and returns how many. Later ones are not concerned.
func (n *Network) Freeze() int {
	wires := n.Wires()
	for _, w := range wires {
		w.Freeze()
	}
	return len(wires)
}

// Mute swallows the notifications of all connections, or no longer.
func (n *Network) Mute(muted bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted = muted
}

// Cut ends all connections, and lets nobody through until it is called with false.
func (n *Network) Cut(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for w := range n.wires {
		w.close()
	}
	clear(n.wires)
}

func (n *Network) close() {
	if err := n.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		n.t.Error(err)
	}
	n.mu.Lock()
	for w := range n.wires {
		w.close()
	}
	n.mu.Unlock()
	n.running.Wait()
}
