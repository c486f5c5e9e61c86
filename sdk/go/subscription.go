package berth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Message is one message that a connection heard.
type Message struct {
	Topic  string          // empty: it was sent to User
	User   string          // who this peer is, for what was sent to it alone
	Offset int64           // in the topic; dense and growing by one. Zero without a topic
	Data   json.RawMessage // the caller's to keep
}

// Recovery is what became of the messages of a topic that were published while a connection was lost.
type Recovery string

// The recoveries. After RecoveredPart and RecoveredNone fetch a fresh copy of whatever the topic is about.
const (
	RecoveredAll  Recovery = "complete" // they follow, all of them
	RecoveredPart Recovery = "partial"  // those between MissingFrom and MissingTo are not kept any more; the others follow
	RecoveredNone Recovery = "reset"    // the topic's history is another one: what was missed is unknown
)

// Subscribed says from where on a connection hears a topic: at first, after each loss, and when the owner itself missed
// messages that cannot be had.
type Subscribed struct {
	Topic     string
	Epoch     string   // identity of the topic's history
	Offset    int64    // messages behind it follow
	Recovered Recovery // empty: this is the first time

	MissingFrom, MissingTo int64 // both included, with RecoveredPart

	// Err is why the topic is not heard: the token does not allow it, or there are too many. The other members are zero.
	Err error
}

// Types of frames about topics.
const (
	typeSubscribe    = "subscribe"
	typeSubscribed   = "subscribed"
	typeUnsubscribed = "unsubscribed"
	typePublish      = "publish"
	typePublished    = "published"
	typeMessage      = "message"
)

const (
	// maxTopics is how many topics a connection may listen to, and a frame may name.
	maxTopics = 256
	// subscribeID is the id of a subscribe frame for all topics, by which its refusals are known. That of one for a single
	// topic has its index behind it.
	subscribeID = "subscribe"
	// codeUnavailable and codeRateLimited are those of error frames that ask for the same again.
	codeUnavailable = "unavailable"
	codeRateLimited = "rate_limited"
	// againWindow is within which a subscription that the owner could not make is asked for again.
	againWindow = 4 * time.Second
)

// wish is a topic in a subscribe frame. Epoch and offset resume it.
type wish struct {
	Topic  string `json:"topic"`
	Epoch  string `json:"epoch,omitempty"`
	Offset *int64 `json:"offset,omitempty"`
}

type subscribeFrame struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Topics []wish `json:"topics"`
}

// position is where in a topic a connection is.
type position struct {
	epoch  string
	offset int64
}

// subscriptions are the topics of a Conn over all its links. Readers of links deliver: one callback at a time, in the order
// of each topic, and nothing of a link that is over once the next one asked for what follows.
type subscriptions struct {
	config *ConnectConfig

	calling sync.Mutex // held during callbacks

	mu      sync.Mutex // guards the rest; never held during a call
	current *link
	at      map[string]position
	waiting map[string]chan<- frame // publishes without an answer, by id
	sent    int                     // publishes so far
}

func newSubscriptions(config *ConnectConfig) *subscriptions {
	return &subscriptions{config: config, at: map[string]position{}, waiting: map[string]chan<- frame{}}
}

// begin makes k the link that delivers, and asks for all topics in one frame.
func (s *subscriptions) begin(ctx context.Context, k *link) {
	s.mu.Lock()
	s.current = k
	s.mu.Unlock()
	if len(s.config.Topics) > 0 {
		s.ask(ctx, k, subscribeID)
	}
}

// ask sends the subscribe frame of an id.
func (s *subscriptions) ask(ctx context.Context, k *link, id string) {
	k.write(ctx, subscribeFrame{Type: typeSubscribe, ID: id, Topics: s.wishes(s.asked(id))})
}

// asked is which topics the subscribe frame of an id is for; none: it is no such id.
func (s *subscriptions) asked(id string) []string {
	if id == subscribeID {
		return s.config.Topics
	}
	index, found := strings.CutPrefix(id, subscribeID+"-")
	if i, err := strconv.Atoi(index); found && err == nil && i >= 0 && i < len(s.config.Topics) {
		return s.config.Topics[i : i+1]
	}
	return nil
}

// end makes nobody the link that delivers.
func (s *subscriptions) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

func (s *subscriptions) wishes(topics []string) []wish {
	s.mu.Lock()
	defer s.mu.Unlock()
	wishes := make([]wish, len(topics))
	for i, topic := range topics {
		wishes[i] = wish{Topic: topic}
		if at, heard := s.at[topic]; heard {
			wishes[i].Epoch, wishes[i].Offset = at.epoch, &at.offset
		}
	}
	return wishes
}

// take handles a frame about topics; false: it is none. The link's reader calls it.
func (s *subscriptions) take(ctx context.Context, k *link, f *frame) bool {
	switch f.Type {
	case typeMessage:
		s.heard(k, f)
	case typeSubscribed:
		s.subscribed(k, f)
	case typeUnsubscribed:
	case typePublished:
		s.answered(f)
	case typeError:
		return s.refused(ctx, k, f)
	default:
		return false
	}
	return true
}

func (s *subscriptions) heard(k *link, f *frame) {
	s.deliver(k, func() bool {
		if f.Topic == "" {
			return true
		}
		at, subscribed := s.at[f.Topic]
		if subscribed {
			s.at[f.Topic] = position{epoch: at.epoch, offset: f.Offset}
		}
		return subscribed
	}, func() {
		if s.config.OnMessage != nil {
			s.config.OnMessage(Message{Topic: f.Topic, User: f.User, Offset: f.Offset, Data: f.Data})
		}
	})
}

func (s *subscriptions) subscribed(k *link, f *frame) {
	s.deliver(k, func() bool {
		s.at[f.Topic] = position{epoch: f.Epoch, offset: f.Offset}
		return true
	}, func() {
		if s.config.OnSubscribed == nil {
			return
		}
		told := Subscribed{Topic: f.Topic, Epoch: f.Epoch, Offset: f.Offset, Recovered: f.Recovered}
		if f.Missing != nil {
			told.MissingFrom, told.MissingTo = f.Missing.From, f.Missing.To
		}
		s.config.OnSubscribed(told)
	})
}

// deliver calls back for a frame of the current link, once note has said where that leaves the topic.
func (s *subscriptions) deliver(k *link, note func() bool, call func()) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.mu.Lock()
	wanted := s.current == k && note()
	s.mu.Unlock()
	if wanted {
		call()
	}
}

// refused handles an error that is about a subscription or a publish. One that names no topic is about the whole frame, which
// the owner did not look into.
func (s *subscriptions) refused(ctx context.Context, k *link, f *frame) bool {
	if len(s.asked(f.ReplyTo)) == 0 {
		return s.answered(f)
	}
	if f.Code == codeUnavailable || f.Code == codeRateLimited {
		id := f.ReplyTo
		if i := slices.Index(s.config.Topics, f.Topic); i >= 0 {
			id = subscribeID + "-" + strconv.Itoa(i)
		}
		k.wg.Go(func() { s.again(ctx, k, id) })
		return true
	}
	s.deliver(k, func() bool { return true }, func() {
		if s.config.OnSubscribed != nil {
			s.config.OnSubscribed(Subscribed{Topic: f.Topic, Err: frameRefusal(f)})
		}
	})
	return true
}

// again asks once more, unless the link ends before.
func (s *subscriptions) again(ctx context.Context, k *link, id string) {
	timer := time.NewTimer(scale(againWindow, rand.Float64()))
	defer timer.Stop()
	select {
	case <-timer.C:
		s.ask(ctx, k, id)
	case <-k.gone:
	}
}

func frameRefusal(f *frame) error {
	return fmt.Errorf("berth: refused by the owner: %s: %s", f.Code, f.Message)
}

// errUnsure is why a publish that was sent has no answer.
var errUnsure = errors.New("berth: the connection was lost: the message may have been published")
