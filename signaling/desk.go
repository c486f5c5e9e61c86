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

const (
	// topicTimeout bounds one call to the backplane for a client. To subscribe may take as long as its replay.
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
	opening map[string]context.CancelFunc // of topics that are being subscribed to

	replaying sync.Mutex // one replayed frame at a time takes room

	listening map[string]*ear // the goroutine's, and after it close's
}

func newDesk(ctx context.Context, p *peer) *desk {
	d := &desk{peer: p, opening: map[string]context.CancelFunc{}, listening: map[string]*ear{}}
	d.ctx, d.end = context.WithCancel(ctx)
	return d
}

// take queues a frame. It reports false when too many wait. To unsubscribe ends a replay that is under way at once.
func (d *desk) take(req request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return true
	}
	if len(d.queue) >= maxTopicFrames {
		return false
	}
	if req.kind == typeUnsubscribe {
		for _, topic := range req.topics {
			if giveUp := d.opening[topic]; giveUp != nil {
				giveUp()
			}
		}
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

// leave ends a subscription. No frame of it is queued once leave has returned.
func (d *desk) leave(topic string) {
	if e := d.listening[topic]; e != nil {
		e.close()
		delete(d.listening, topic)
		d.peer.hub.metrics.subscriptions.Dec()
	}
}

func (d *desk) serve(req request) {
	defer d.peer.hub.contain(d.ctx, d.peer.sender)
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
	ears := make([]*ear, len(wanted))
	var group errgroup.Group
	group.SetLimit(subscribeAtOnce)
	for i, w := range wanted {
		group.Go(func() (none error) { ears[i] = d.listen(w, req.id); return })
	}
	_ = group.Wait() // because every topic has its own answer
	for i, e := range ears {
		if e != nil {
			d.listening[wanted[i].topic] = e
			d.peer.hub.metrics.subscriptions.Inc()
		}
	}
}

// listen subscribes to one topic, and replays what the wish asks for. Nil: the client was told that it failed, or does not
// want it any more.
func (d *desk) listen(w wish, replyTo string) *ear {
	defer d.peer.hub.contain(d.ctx, d.peer.sender)
	ctx, done := d.begin(w.topic)
	defer done()
	e := &ear{desk: d, topic: w.topic, replyTo: replyTo, ctx: ctx}
	sub, err := d.peer.hub.deps.Topics.Subscribe(ctx, berth.TenantTopic(d.peer.grant.TenantID, w.topic), w.from, e.deliver)
	switch {
	case err == nil:
		e.sub = sub
		return e
	case ctx.Err() == nil:
		d.fail(replyTo, w.topic, err)
	}
	e.close()
	return nil
}

// begin notes that a topic is being subscribed to, until done.
func (d *desk) begin(topic string) (ctx context.Context, done func()) {
	ctx, giveUp := context.WithCancel(d.ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opening[topic] = giveUp
	return ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.opening, topic)
		giveUp()
	}
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
	p.hub.metrics.topicFailures.Inc()
	p.hub.deps.Logger.DebugContext(d.ctx, "topic frame failed", "session_id", p.session.id, "peer_id", p.info.ID, "err", err)
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
