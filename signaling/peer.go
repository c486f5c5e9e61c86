package signaling

import (
	"context"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// maxErrors is how many wrong frames a connection may send before it is closed: a client that does not learn.
const maxErrors = 32

// peer is one joined connection. Its reader goroutine owns media, desk, errors, tokens and bye.
type peer struct {
	hub     *Hub
	session *session
	sender  *sender
	info    berth.Peer // with this connection's ConnectionID
	grant   Grant

	media  MediaPeer // nil before the first offer, answer or candidate
	desk   *desk     // nil before the first frame about topics
	errors int
	tokens bucket // for its frames
	bye    bool

	mu        sync.Mutex
	lastHeard time.Time
	spoke     bool // sent at least one frame
	ping      *time.Timer
	stopped   bool
	shed      *time.Timer // sheds the connection; nil: it is to stay
	shedAt    time.Time   // then
	moved     bool        // it was
}

// run reads until the connection is gone, then takes the peer off the books.
func (p *peer) run(ctx context.Context) {
	p.startPings()
	defer p.end()
	p.read(ctx)
}

func (p *peer) end() {
	p.stopPings()
	p.closeDesk()
	p.closeInbox()
	p.closeMedia()
	p.hub.detach(p.session, p, false)
	if !p.bye && !p.wasMoved() {
		p.hub.settler.disconnect(p.gone(p.session.held))
	}
}

func (p *peer) wasMoved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved
}

func (p *peer) gone(held berth.Held) departure {
	return departure{
		Disconnect: berth.Disconnect{Held: held, PeerID: p.info.ID, ConnectionID: p.info.ConnectionID}, role: p.info.Role,
		call: p.session != nil && p.session.call != nil,
	}
}

// read handles messages one by one, each in another goroutine: the stack that this takes would stay with a connection that
// is idle again.
func (p *peer) read(ctx context.Context) {
	more := make(chan bool)
	for {
		p.sender.wire.Await()
		p.hub.crew.do(func() { more <- p.readOne(ctx) })
		if !<-more {
			return
		}
	}
}

// readOne handles the next message and reports whether there may be another one. While the connection is closing it reads
// and ignores, because unread bytes would turn the close frame into a reset.
func (p *peer) readOne(ctx context.Context) (more bool) {
	defer p.hub.contain(ctx, p.sender)
	text, message, err := p.sender.wire.Read()
	if err != nil {
		if code, reason := violation(err); code != 0 {
			p.sender.close(code, reason)
		}
		return false
	}
	if _, closing := p.sender.closed(); closing {
		return true
	}
	p.heard()
	p.handle(ctx, text, message)
	return true
}

// startPings arms the application ping. It also looks whether the client was heard in time: a client may be silent
// for JoinTimeout at first, and for PongTimeout between two frames.
func (p *peer) startPings() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ping = time.AfterFunc(p.hub.config.PingInterval, p.beat)
}

func (p *peer) stopPings() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.ping.Stop()
	if p.shed != nil {
		p.shed.Stop()
	}
}

func (p *peer) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastHeard = time.Now()
	p.spoke = true
}

// beat sends a ping when one is due, and closes a connection whose client was silent too long.
func (p *peer) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	limit := p.hub.config.PongTimeout
	if !p.spoke {
		limit = p.hub.config.JoinTimeout
	}
	left := remaining(p.lastHeard, limit, p.hub.config.Awake())
	if left <= 0 {
		p.sender.close(CloseTryLater, reasonSilent)
		return
	}
	p.sender.sendPing(p.hub.ping)
	p.ping.Reset(min(p.hub.config.PingInterval, left))
}
