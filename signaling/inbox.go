package signaling

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// inbox takes what is for this worker: what is sent to users, for their connections here, and who is lost of calls. The worker
// listens to it only while such a connection or a call is there, since each listener makes every notification dearer.
type inbox struct {
	hub *Hub

	turn    chan struct{} // holds an element while somebody begins or ends to listen
	holders int           // connections of users and calls that are, or are about to be, here; turn guards it
	sub     *backplane.Subscription

	mu    sync.Mutex // guards the rest, and every letterbox
	users map[addressee]map[*peer]*letterbox
}

// addressee is a user of a tenant.
type addressee struct{ tenant, user string }

func (p *peer) addressee() addressee { return addressee{p.grant.TenantID, p.info.User} }

// letterbox holds what comes for a connection before its welcome, which is the first frame that a client sees.
type letterbox struct {
	welcomed bool
	early    [][]byte // maxEarly at most
}

// maxEarly bounds what a letterbox holds. The time between is that of one write to the database.
const maxEarly = 64

// hold makes the worker listen. Every call without an error is followed by one of release.
func (i *inbox) hold(ctx context.Context) error {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return fmt.Errorf("listen to the inbox: %w", ctx.Err())
	}
	if i.sub == nil {
		sub, err := i.hub.deps.Topics.Subscribe(ctx, i.hub.config.Inbox, nil, i.deliver)
		if err != nil {
			return fmt.Errorf("listen to the inbox: %w", err)
		}
		i.sub = sub
	}
	i.holders++
	return nil
}

// release waits while somebody begins to listen.
func (i *inbox) release() {
	i.turn <- struct{}{}
	defer func() { <-i.turn }()
	if i.holders--; i.holders == 0 {
		i.sub.Unsubscribe()
		i.sub = nil
	}
}

// end stops listening, whoever still holds it. Nothing else of the inbox may run.
func (i *inbox) end() {
	if i.sub != nil {
		i.sub.Unsubscribe()
	}
}

// open makes p reachable, and must come before the database is told that p's user is here: a message that is sent right
// after has to arrive. Every call without an error is followed by one of shut.
func (i *inbox) open(ctx context.Context, p *peer) error {
	if err := i.hold(ctx); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	boxes := i.users[p.addressee()]
	if boxes == nil {
		boxes = map[*peer]*letterbox{}
		i.users[p.addressee()] = boxes
	}
	boxes[p] = &letterbox{}
	return nil
}

// welcomed hands p what came before its welcome was queued.
func (i *inbox) welcomed(p *peer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if box := i.users[p.addressee()][p]; box != nil {
		box.welcomed = true
		for _, frame := range box.early {
			p.sender.send(frame)
		}
		box.early = nil
	}
}

func (i *inbox) shut(p *peer) {
	i.mu.Lock()
	boxes := i.users[p.addressee()]
	delete(boxes, p)
	if len(boxes) == 0 {
		delete(i.users, p.addressee())
	}
	i.mu.Unlock()
	i.release()
}

func (i *inbox) deliver(m backplane.Message) {
	defer i.hub.survive("inbox message")
	if m.Opening {
		return
	}
	if m.Notice() {
		i.hub.deps.Logger.Warn("inbox messages lost", "recovery", string(m.Recovery.Outcome),
			"from", m.Recovery.Missing.From, "to", m.Recovery.Missing.To)
		i.hub.beside(i.hub.recoverCalls)
		return
	}
	var message berth.InboxMessage
	if err := json.Unmarshal(m.Data, &message); err != nil {
		i.hub.deps.Logger.Warn("inbox message not understood", "err", err)
		return
	}
	if message.Direct == nil && message.Lost == nil {
		i.hub.deps.Logger.Warn("inbox message says nothing that this version knows")
	}
	if message.Direct != nil {
		i.direct(*message.Direct)
	}
	for _, lost := range message.Lost {
		if c := i.hub.callOf(lost.Call); c != nil {
			c.take(lost.CallMessage)
		}
	}
}

// direct queues a message to each connection of its user.
func (i *inbox) direct(message berth.DirectMessage) {
	frame := directFrame(message.UserID, message.Data)
	i.mu.Lock()
	defer i.mu.Unlock()
	for p, box := range i.users[addressee{message.TenantID, message.UserID}] {
		switch {
		case box.welcomed:
			p.sender.send(frame)
		case len(box.early) < maxEarly:
			box.early = append(box.early, frame)
		}
	}
}

func (p *peer) closeInbox() {
	if p.info.User != "" {
		p.hub.inbox.shut(p)
	}
}
