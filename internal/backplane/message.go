package backplane

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// MaxData is the most bytes of a message's data.
	MaxData = 64 << 10
	// MaxTopic is the most bytes of a topic's name.
	MaxTopic = 300
	// MaxMessages is the most messages of one Publish.
	MaxMessages = 256
	// Kept is how many messages of a topic can be had again at most; see berth.read_topics.
	Kept = 256
)

var (
	// ErrInvalid says that a topic or message is not one; the error that wraps it says what is wrong.
	ErrInvalid = errors.New("invalid message")
	// ErrTooLarge says that data is longer than MaxData, or that there are more than MaxMessages.
	ErrTooLarge = errors.New("message too large")
	// ErrClosed says that the backplane was closed, or was not started.
	ErrClosed = errors.New("backplane closed")
	// ErrPooled says that the direct URL leads to a pooler, through which notifications do not arrive.
	ErrPooled = errors.New("the direct database url leads to a pooler, through which notifications do not arrive; " +
		"let BERTH_DATABASE_DIRECT_URL, and BERTH_BACKPLANE_URLS if it is set, name Postgres itself")
	// ErrUnavailable is berth.ErrUnavailable: the database did not answer, or too much waits for it. What was to be
	// published may have been.
	ErrUnavailable = berth.ErrUnavailable
)

// Outgoing is a message to be published.
type Outgoing struct {
	// Topic is one to MaxTopic bytes of printable ASCII without spaces.
	Topic string
	// Data is UTF-8 without NUL, MaxData bytes at most. It must not be changed afterwards.
	Data []byte
}

// check returns an error that names what is wrong, and no data.
func (o Outgoing) check() error {
	if err := checkTopic(o.Topic); err != nil {
		return err
	}
	switch {
	case len(o.Data) > MaxData:
		return fmt.Errorf("%w: data has %d bytes, and may have %d", ErrTooLarge, len(o.Data), MaxData)
	case !utf8.Valid(o.Data):
		return fmt.Errorf("%w: data must be UTF-8", ErrInvalid)
	case strings.IndexByte(string(o.Data), 0) >= 0:
		return fmt.Errorf("%w: data must not contain a NUL byte", ErrInvalid)
	}
	return nil
}

func checkTopic(topic string) error {
	if topic == "" || len(topic) > MaxTopic {
		return fmt.Errorf("%w: a topic has 1 to %d bytes, not %d", ErrInvalid, MaxTopic, len(topic))
	}
	if strings.ContainsFunc(topic, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%w: a topic is printable ASCII without spaces", ErrInvalid)
	}
	return nil
}

// checkStart looks at what a subscriber asks for.
func checkStart(topic string, from *Position) error {
	if from != nil && from.Offset < 0 {
		return fmt.Errorf("%w: an offset is 0 or more, not %d", ErrInvalid, from.Offset)
	}
	return checkTopic(topic)
}

func checkAll(messages []Outgoing) error {
	if len(messages) > MaxMessages {
		return fmt.Errorf("%w: %d messages at once, and %d are the most", ErrTooLarge, len(messages), MaxMessages)
	}
	for _, m := range messages {
		if err := m.check(); err != nil {
			return err
		}
	}
	return nil
}

// Position is a place in a topic: behind the message with this offset. The zero position is in no topic.
type Position struct {
	// Epoch names the incarnation of the topic, a UUID. Offsets of two epochs have nothing to do with each other.
	Epoch string
	// Offset is that of a message: 1 for the first of the epoch, then dense. 0 is before the first.
	Offset int64
}

// Published says what became of a message.
type Published struct {
	// Position is that of the message.
	Position Position
	// Processes is how many processes with subscribers of the topic were told of it, this one included. Dead ones do not
	// count, as far as is known. Of a Memory: one or none.
	Processes int
}

// Message is what a subscriber is given: a message of the topic, or a notice: where it begins, or that some cannot be had.
type Message struct {
	Topic string
	// Position is that of the message. Of a notice: the one from which it goes on.
	Position Position
	// Data is that of the message, not to be changed: other subscribers have it too. Of a notice: nil.
	Data []byte
	// Opening marks the notice that comes before all else. Its Position is where the subscription begins.
	Opening bool
	// Replayed marks messages that were missed: they come on the goroutine that subscribes, so only with them deliver may
	// wait.
	Replayed bool
	// Recovery has an outcome in notices only, and none in the opening of a subscription that named no position.
	Recovery Recovery
}

// Notice says whether this is a notice, and no message.
func (m Message) Notice() bool { return m.Opening || m.Recovery.Outcome != "" }

// Outcome is what became of the wish to go on from a position.
type Outcome string

const (
	// Complete says that every message after the position follows.
	Complete Outcome = "complete"
	// Partial says that the messages of Recovery.Missing are no longer kept; those after them follow.
	Partial Outcome = "partial"
	// Reset says that the position is of an epoch that is over: what was missed is unknown.
	Reset Outcome = "reset"
)

// Recovery answers a subscriber that named a position, and tells any subscriber what it missed.
type Recovery struct {
	// Outcome is empty where no position was named.
	Outcome Outcome
	// Missing is the range that Partial is about.
	Missing Range
}

// Range is a range of offsets, both ends included.
type Range struct {
	From, To int64
}
