package media

import (
	"context"
	"errors"
	"sync"
)

// echo sends a client its own media and messages back. Media of a line returns on the same line, in
// whatever codec the client chose.
type echo struct {
	mu    sync.Mutex
	lines map[string]*echoLine // by mid
}

// echoLine pairs what arrives on a line with what leaves on it.
type echoLine struct {
	out    *PacketTrack
	source *Track // the one that is forwarded; simulcast layers beside it are not
}

func newEcho(*Peer) (PeerHandler, error) {
	return &echo{lines: make(map[string]*echoLine)}, nil
}

// Negotiate adds a track to every line that the client wants to receive on.
func (e *echo) Negotiate(_ context.Context, n *Negotiation) error {
	for _, line := range n.Lines() {
		if !line.Receives || line.Sending {
			continue
		}
		out, err := n.SendPackets(line.Kind)
		if err != nil {
			return err
		}
		e.add(out)
	}
	return nil
}

func (e *echo) add(out *PacketTrack) {
	e.mu.Lock()
	defer e.mu.Unlock()
	mid := out.MID()
	line := e.lines[mid]
	if line == nil {
		line = &echoLine{}
		e.lines[mid] = line
	}
	line.out = out
	out.OnKeyframeRequest(func() {
		if source := e.source(mid); source != nil {
			source.RequestKeyframe()
		}
	})
}

func (e *echo) source(mid string) *Track {
	e.mu.Lock()
	defer e.mu.Unlock()
	if line := e.lines[mid]; line != nil {
		return line.source
	}
	return nil
}

// claim makes t the source of its line. A new track takes over, but not from another simulcast layer.
func (e *echo) claim(t *Track) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	line := e.lines[t.MID()]
	if line == nil {
		line = &echoLine{}
		e.lines[t.MID()] = line
	}
	if line.source != nil && t.RID() != "" {
		return false
	}
	line.source = t
	return true
}

// target returns where packets of t go, and whether t still is the source of its line.
func (e *echo) target(t *Track) (*PacketTrack, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	line := e.lines[t.MID()]
	return line.out, line.source == t
}

func (e *echo) release(t *Track) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if line := e.lines[t.MID()]; line.source == t {
		line.source = nil
	}
}

// Run has nothing to do: everything is driven by what arrives.
func (e *echo) Run(context.Context) error { return nil }

// Track forwards packets until the track ends.
func (e *echo) Track(_ context.Context, t *Track) error {
	if !e.claim(t) {
		return nil
	}
	defer e.release(t)
	t.RequestKeyframe()
	buf := make([]byte, packetBytes)
	for {
		n, err := t.Read(buf)
		if err != nil {
			return err
		}
		out, current := e.target(t)
		if !current {
			return nil
		}
		if out == nil {
			continue // the client does not want to receive on this line
		}
		if err := out.Write(buf[:n], t.Codec()); err != nil {
			return err
		}
	}
}

// Channel returns every message. A client that does not read stops the echo and, through SCTP's window,
// its own sending.
func (e *echo) Channel(_ context.Context, c *Channel) error {
	for {
		message, text, err := c.Read()
		if errors.Is(err, ErrMessageTooBig) {
			continue
		}
		if err != nil {
			return err
		}
		if err := c.Write(message, text); err != nil && !errors.Is(err, ErrMessageTooBig) {
			return err
		}
	}
}
