package signaling

import (
	"context"
	"sync"

	"github.com/berthdev/berth/internal/backplane"
)

// ear is one subscription of one connection.
type ear struct {
	desk    *desk
	topic   string // as the client knows it
	replyTo string
	sub     *backplane.Subscription // nil until it is open
	ctx     context.Context         //nolint:containedctx // ends the wait for room

	mu   sync.Mutex // held while a frame is queued, so that none is after close
	over bool
}

// deliver queues the frame of a message or notice. What is replayed waits until the client has read most of what was
// queued, so that nobody is cut for being slow by what was missed.
func (e *ear) deliver(m backplane.Message) {
	defer e.desk.peer.hub.contain(e.desk.ctx, e.desk.peer.sender)
	if !m.Replayed {
		e.send(queued{data: e.frame(m)})
		return
	}
	e.desk.replaying.Lock()
	defer e.desk.replaying.Unlock()
	e.desk.peer.sender.waitForRoom(e.ctx)
	e.send(queued{data: e.frame(m), history: true})
}

func (e *ear) send(q queued) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.desk.peer.sender.put(q)
	}
}

func (e *ear) frame(m backplane.Message) []byte {
	switch {
	case m.Opening:
		return encode(subscribedOf(e.topic, e.replyTo, m))
	case m.Notice():
		return encode(subscribedOf(e.topic, "", m))
	default:
		return e.desk.peer.hub.recent.frame(e.topic, m)
	}
}

// close ends the subscription. No frame of it is queued afterwards.
func (e *ear) close() {
	if e.sub != nil {
		e.sub.Unsubscribe()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}

func subscribedOf(topic, replyTo string, m backplane.Message) subscribedFrame {
	frame := subscribedFrame{
		Type: typeSubscribed, Topic: topic, Epoch: m.Position.Epoch, Offset: m.Position.Offset,
		Recovered: m.Recovery.Outcome, ReplyTo: replyTo,
	}
	if m.Recovery.Outcome == backplane.Partial {
		frame.Missing = &missingRange{From: m.Recovery.Missing.From, To: m.Recovery.Missing.To}
	}
	return frame
}
