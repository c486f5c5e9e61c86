package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strconv"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// topicPositionPattern is the form of a message's id, "<epoch>:<offset>". Whether there is such an epoch, the backplane says.
var topicPositionPattern = regexp.MustCompile(`^([A-Za-z0-9-]{1,64}):(0|[1-9][0-9]{0,18})$`)

const reasonTopicPosition = "must be the id of an event of this topic, epoch:offset, once"

// Why a topic's stream ended.
var (
	errSlow = errors.New("client too slow")
	errOver = errors.New("history not read to its end")
)

// topicStream sends what is published to a topic to one client. Its request's goroutine owns it; another one waits in
// Subscribe while history comes.
type topicStream struct {
	sse

	api   *service
	who   follower
	topic string // as the tenant knows it
	queue *topicQueue
	ended chan error // gets what Subscribe returned, if that is an error
}

// FollowTopic serves GET /v1/topics/{topic}/messages.
func (s *service) FollowTopic(w http.ResponseWriter, r *http.Request, topic wire.Topic, params wire.FollowTopicParams) {
	who, from, err := s.readFollow(r, topic, params)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	leave, err := s.topicPlaces.enter(who.tenantID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer leave()
	if who.session != 0 {
		defer s.followed.enter(who.session)()
	}
	st := &topicStream{
		sse: s.newSSE(w), api: s, who: who, topic: topic, queue: newTopicQueue(), ended: make(chan error, 1),
	}
	st.serve(r, from)
}

// readFollow checks who asks before it says what is wrong with the question.
func (s *service) readFollow(
	r *http.Request, topic string, params wire.FollowTopicParams,
) (who follower, from *backplane.Position, err error) {
	if who, err = s.follower(r, topic, params.Token); err != nil {
		return who, nil, err
	}
	var c checks
	c.require(berth.ValidTopic(topic), "topic", reasonTopic)
	from = c.lastMessage(r.Header, params.From)
	return who, from, c.err()
}

// lastMessage returns the position that a client goes on after, nil for one that begins; see lastEvent.
func (c *checks) lastMessage(header http.Header, query *string) *backplane.Position {
	const name = "Last-Event-ID"
	if values := header.Values(name); len(values) > 0 && values[0] != "" {
		position, ok := parseTopicPosition(values[0])
		c.require(ok && len(values) == 1, name, reasonTopicPosition)
		return &position
	}
	if query == nil || *query == "" {
		return nil
	}
	position, ok := parseTopicPosition(*query)
	c.require(ok, "from", reasonTopicPosition)
	return &position
}

func parseTopicPosition(text string) (p backplane.Position, ok bool) {
	parts := topicPositionPattern.FindStringSubmatch(text)
	if parts == nil {
		return p, false
	}
	offset, err := strconv.ParseInt(parts[2], 10, 64)
	return backplane.Position{Epoch: parts[1], Offset: offset}, err == nil
}

func formatTopicPosition(p backplane.Position) string {
	return p.Epoch + ":" + strconv.FormatInt(p.Offset, 10)
}

// serve subscribes, answers, and sends until the client leaves or does not keep up, its key is revoked, its session has
// ended, or the process stops.
func (st *topicStream) serve(r *http.Request, from *backplane.Position) {
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.subscribe(ctx, from)
	}()
	defer func() { cancel(); st.queue.end(); <-done }()
	defer st.api.held.add(func() {
		cancel()
		st.setWriteDeadline(0)
	})()
	if err := st.opening(ctx); err != nil {
		if ctx.Err() != nil && r.Context().Err() == nil {
			err = stopping()
		}
		st.api.fail(st.w, r, backplaneError(err))
		return
	}
	if !st.head(r) {
		return
	}
	defer st.end()
	err := st.run(ctx)
	if reason := cutReason(err); reason != "" && !st.api.draining.Load() { // Stop cuts streams too
		st.api.metrics.cut.WithLabelValues(reason).Inc()
	}
	st.api.log.DebugContext(ctx, "topic stream ended", slog.String("route", r.Pattern), slog.Any("err", err))
}

// cutReason is empty for a stream whose client left.
func cutReason(err error) string {
	switch {
	case errors.Is(err, errSlow), errors.Is(err, os.ErrDeadlineExceeded):
		return streamSlow
	case errors.Is(err, errOver) && !errors.Is(err, context.Canceled):
		return streamLost
	default:
		return ""
	}
}

// subscribe subscribes until ctx ends.
func (st *topicStream) subscribe(ctx context.Context, from *backplane.Position) {
	name := berth.TenantTopic(st.who.tenantID, st.topic)
	subscription, err := st.api.deps.Backplane.Subscribe(ctx, name, from, st.queue.put)
	if err != nil {
		st.ended <- err
		return
	}
	defer subscription.Unsubscribe()
	<-ctx.Done()
}

// opening waits until there is something to send, before anything is answered.
func (st *topicStream) opening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, st.api.cfg.RequestTimeout)
	defer cancel()
	select {
	case <-st.queue.ready:
		st.queue.tell() // run, which looks again
		return nil
	case err := <-st.ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run sends what comes, and fills the silence.
func (st *topicStream) run(ctx context.Context) error {
	var text bytes.Buffer
	writeRetry(&text)
	text.WriteByte('\n')
	for {
		select {
		case <-st.queue.ready:
			messages, over := st.queue.take()
			if err := st.send(ctx, &text, messages); err != nil {
				return err
			}
			if over {
				return errSlow
			}
		case err := <-st.ended:
			return fmt.Errorf("%w: %w", errOver, err)
		case <-st.silence.C:
			if err := st.send(ctx, bytes.NewBufferString(": nothing new\n\n"), nil); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recheck ends a stream to whose client nothing may be sent any more.
func (st *topicStream) recheck(ctx context.Context) error {
	if st.who.key != "" {
		return st.api.recheck(ctx, st.who.key)
	}
	return st.api.followed.recheck(ctx, st.who.session)
}

// send writes text and then messages, if the client may still have them. It leaves text empty.
func (st *topicStream) send(ctx context.Context, text *bytes.Buffer, messages []backplane.Message) error {
	if err := st.recheck(ctx); err != nil {
		return err
	}
	for _, m := range messages {
		if err := writeMessage(text, st.topic, m); err != nil {
			return err
		}
	}
	err := st.write(ctx, text.Bytes())
	text.Reset()
	return err
}

// writeMessage appends one message, or notice, of a topic. Data was checked when it was published, and goes out as it is:
// each stream would have to encode it.
func writeMessage(text *bytes.Buffer, topic string, m backplane.Message) error {
	position := formatTopicPosition(m.Position)
	if m.Notice() {
		data, err := json.Marshal(wireSubscribed(topic, m))
		if err != nil {
			return fmt.Errorf("encode where a topic goes on: %w", err)
		}
		_, err = fmt.Fprintf(text, "id: %s\nevent: subscribed\ndata: %s\n\n", position, data)
		return err
	}
	_, err := fmt.Fprintf(text, "id: %s\nevent: message\ndata: {\"topic\":%q,\"offset\":%d,\"data\":%s}\n\n",
		position, topic, m.Position.Offset, oneLine(m.Data))
	return err
}

// oneLine is JSON without line breaks, which would end an event's data. Only white space between its tokens has them.
func oneLine(data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return data
	}
	return bytes.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, data)
}

func wireSubscribed(topic string, m backplane.Message) wire.Subscribed {
	answer := wire.Subscribed{
		Topic: topic, Epoch: m.Position.Epoch, Offset: m.Position.Offset,
		Recovered: optional(wire.SubscribedRecovered(m.Recovery.Outcome)),
	}
	if m.Recovery.Outcome == backplane.Partial {
		answer.Missing = &wire.OffsetRange{From: m.Recovery.Missing.From, To: m.Recovery.Missing.To}
	}
	return answer
}
