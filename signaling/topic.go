package signaling

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// Topics carry messages between workers; package backplane provides them. Data of the tenants' topics is JSON text:
// whoever publishes to them has checked it.
type Topics interface {
	// Publish appends messages to their topics and returns once they are certain to be delivered, in the order of its
	// calls.
	Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error)

	// Subscribe has deliver called with an opening and then with each message of the topic, in order. deliver does not
	// block, but for what comes with Replayed.
	Subscribe(
		ctx context.Context, topic string, from *backplane.Position, deliver func(backplane.Message),
	) (*backplane.Subscription, error)

	// Presence counts who listens to a topic.
	Presence(ctx context.Context, topic string) (backplane.Presence, error)
}

const (
	// topicTimeout bounds one call to the backplane for a client; a replay waits for the client besides.
	topicTimeout = 5 * time.Second
	// subscribeAtOnce is how many topics of one connection are subscribed to side by side.
	subscribeAtOnce = 8
	// maxTopicFrames bounds the frames about topics that wait for those before them.
	maxTopicFrames = 16
)

// desk serves what one connection wishes of topics, one frame after the other, beside its reader: a replay may take as
// long as the client takes to read it. A goroutine runs only while there is something to do.
type desk struct {
	peer *peer
	ctx  context.Context //nolint:containedctx // the connection's: it ends what the desk waits for
	end  context.CancelFunc

	mu      sync.Mutex
	queue   []request
	working sync.WaitGroup
	busy    bool
	closed  bool

	listening map[string]*backplane.Subscription // the goroutine's, and after it close's
}

func newDesk(ctx context.Context, p *peer) *desk {
	d := &desk{peer: p, listening: map[string]*backplane.Subscription{}}
	d.ctx, d.end = context.WithCancel(ctx)
	return d
}

// take queues a frame. It reports false when too many wait.
func (d *desk) take(req request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return true
	}
	if len(d.queue) >= maxTopicFrames {
		return false
	}
	d.queue = append(d.queue, req)
	if !d.busy {
		d.busy = true
		d.working.Go(d.work)
	}
	return true
}

func (d *desk) work() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 || d.closed {
			d.busy = false
			d.mu.Unlock()
			return
		}
		req := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		d.serve(req)
	}
}

// close ends what is under way and all that is listened to.
func (d *desk) close() {
	d.mu.Lock()
	d.closed, d.queue = true, nil
	d.mu.Unlock()
	d.end()
	d.working.Wait()
	for topic := range d.listening {
		d.leave(topic)
	}
}

func (d *desk) leave(topic string) {
	if sub := d.listening[topic]; sub != nil {
		sub.Unsubscribe()
		delete(d.listening, topic)
		d.peer.hub.metrics.subscriptions.Dec()
	}
}

func (d *desk) serve(req request) {
	switch req.kind {
	case typeSubscribe:
		d.subscribe(req)
	case typeUnsubscribe:
		for _, topic := range req.topics {
			d.leave(topic)
		}
		d.peer.sender.send(encode(unsubscribedFrame{Type: typeUnsubscribed, Topics: req.topics, ReplyTo: req.id}))
	case typePublish:
		d.publish(req)
	case typePresence:
		d.presence(req)
	}
}

// subscribe listens to each topic of a frame that may be listened to; the others are answered by errors. A topic that
// was listened to before begins anew, at the position that the frame names.
func (d *desk) subscribe(req request) {
	var wanted []wish
	for _, w := range req.wishes {
		d.leave(w.topic)
		switch {
		case !d.peer.grant.Topics.MaySubscribe(w.topic):
			d.refuse(req.id, w.topic, codeForbidden, "the token does not allow to subscribe to this topic")
		case len(d.listening)+len(wanted) >= d.peer.hub.config.MaxSubscriptions:
			d.refuse(req.id, w.topic, codeTooManySubs, "this connection listens to as many topics as it may: unsubscribe first")
		default:
			wanted = append(wanted, w)
		}
	}
	subs := make([]*backplane.Subscription, len(wanted))
	var group errgroup.Group
	group.SetLimit(subscribeAtOnce)
	for i, w := range wanted {
		group.Go(func() (none error) { subs[i] = d.listen(w, req.id); return })
	}
	_ = group.Wait() // because every topic has its own answer
	for i, sub := range subs {
		if sub != nil {
			d.listening[wanted[i].topic] = sub
			d.peer.hub.metrics.subscriptions.Inc()
		}
	}
}

// listen subscribes to one topic, and replays what the wish asks for. Nil: the client was told that it failed.
func (d *desk) listen(w wish, replyTo string) *backplane.Subscription {
	sub, err := d.peer.hub.deps.Topics.Subscribe(d.ctx, berth.TenantTopic(d.peer.grant.TenantID, w.topic), w.from,
		func(m backplane.Message) { d.deliver(w.topic, replyTo, m) })
	if err != nil {
		d.fail(replyTo, w.topic, err)
		return nil
	}
	return sub
}

// deliver queues the frame of a message or notice. While history is replayed it waits until the client has read most of
// what was queued, so that nobody is cut for being slow by what was missed.
func (d *desk) deliver(topic, replyTo string, m backplane.Message) {
	switch {
	case m.Opening:
		d.peer.sender.send(encode(subscribedOf(topic, replyTo, m)))
		return
	case m.Notice():
		d.peer.sender.send(encode(subscribedOf(topic, "", m)))
		return
	case m.Replayed:
		d.peer.sender.waitForRoom(d.ctx)
	}
	d.peer.sender.send(d.peer.hub.recent.frame(topic, m))
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

func (d *desk) publish(req request) {
	topic := req.topics[0]
	if !d.peer.grant.Topics.MayPublish(topic) {
		d.refuse(req.id, topic, codeForbidden, "the token does not allow to publish to this topic")
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, topicTimeout)
	defer cancel()
	published, err := d.peer.hub.deps.Topics.Publish(ctx,
		backplane.Outgoing{Topic: berth.TenantTopic(d.peer.grant.TenantID, topic), Data: req.data})
	if err != nil {
		d.fail(req.id, topic, err)
		return
	}
	at := published[0].Position
	d.peer.sender.send(encode(publishedFrame{
		Type: typePublished, Topic: topic, Epoch: at.Epoch, Offset: at.Offset, ReplyTo: req.id,
	}))
}

func (d *desk) presence(req request) {
	topic := req.topics[0]
	if !d.peer.grant.Topics.MaySubscribe(topic) {
		d.refuse(req.id, topic, codeForbidden, "the token does not allow to see this topic")
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, topicTimeout)
	defer cancel()
	present, err := d.peer.hub.deps.Topics.Presence(ctx, berth.TenantTopic(d.peer.grant.TenantID, topic))
	if err != nil {
		d.fail(req.id, topic, err)
		return
	}
	d.peer.sender.send(encode(presenceFrame{Type: typePresence, Topic: topic, Members: present.Members, ReplyTo: req.id}))
}

// fail answers what the backplane did not do. The outcome of a publish may be unknown then.
func (d *desk) fail(replyTo, topic string, err error) {
	if d.ctx.Err() != nil {
		return // the connection is ending
	}
	p := d.peer
	p.hub.deps.Logger.WarnContext(d.ctx, "topic frame failed", "session_id", p.session.id, "peer_id", p.info.ID, "err", err)
	if errors.Is(err, backplane.ErrInvalid) || errors.Is(err, backplane.ErrTooLarge) {
		d.refuse(replyTo, topic, codeInvalidFrame, "the message cannot be carried")
		return
	}
	d.refuse(replyTo, topic, codeUnavailable, "the backplane did not answer in time: try again")
}

func (d *desk) refuse(replyTo, topic, code, message string) {
	d.peer.sender.send(encode(errorFrame{Type: typeError, Code: code, Message: message, Topic: topic, ReplyTo: replyTo}))
}

// topicFrame hands a frame about topics to the connection's desk.
func (p *peer) topicFrame(ctx context.Context, req request) {
	if p.desk == nil {
		p.desk = newDesk(ctx, p)
	}
	if !p.desk.take(req) {
		p.reject(req.id, &frameError{code: codeUnavailable, message: "too many frames about topics wait: await their answers"})
	}
}

func (p *peer) closeDesk() {
	if p.desk != nil {
		p.desk.close()
	}
}

// recent remembers the frame that was rendered last: a message goes to all subscribers of this worker one after the
// other, and is the same for each.
type recent struct {
	mu    sync.Mutex
	topic string
	at    backplane.Position
	last  []byte
}

func (r *recent) frame(topic string, m backplane.Message) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topic != m.Topic || r.at != m.Position {
		r.topic, r.at, r.last = m.Topic, m.Position, messageFrame(topic, m.Position.Offset, m.Data)
	}
	return r.last
}
