package signaling

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// Types of frames about topics.
const (
	typeSubscribe    = "subscribe"
	typeSubscribed   = "subscribed"
	typeUnsubscribe  = "unsubscribe"
	typeUnsubscribed = "unsubscribed"
	typePublish      = "publish"
	typePublished    = "published"
	typePresence     = "presence"
	typeMessage      = "message"
)

// Codes of error frames about topics.
const (
	codeForbidden   = "forbidden"       // the token does not allow it
	codeTooManySubs = "too_many_topics" // the connection listens to as many as it may
	codeTooLarge    = "too_large"
	codeUnavailable = "unavailable" // the backplane did not answer: repeat
)

// maxTopicsPerFrame bounds the topics that one frame names.
const maxTopicsPerFrame = 256

// wish is a topic to listen to, and from where on. from nil: from now on.
type wish struct {
	topic string
	from  *backplane.Position
}

type subscribeBody struct {
	head
	Topics []struct {
		Topic  string `json:"topic"`
		Epoch  string `json:"epoch,omitempty"`
		Offset *int64 `json:"offset"`
	} `json:"topics"`
}

type unsubscribeBody struct {
	head
	Topics []string `json:"topics"`
}

type publishBody struct {
	head
	Topic string         `json:"topic"`
	Data  jsontext.Value `json:"data"`
}

type presenceBody struct {
	head
	Topic string `json:"topic"`
}

func (r *request) parseSubscribe(data []byte) error {
	var body subscribeBody
	if strict(data, &body) != nil {
		return invalid("subscribe has one member, topics: a list of objects with topic, and epoch and offset to resume")
	}
	if wrong := countTopics(len(body.Topics)); wrong != nil {
		return wrong
	}
	seen := make(map[string]bool, len(body.Topics))
	for _, t := range body.Topics {
		if wrong := checkTopic(t.Topic); wrong != nil {
			return wrong
		}
		if seen[t.Topic] {
			return invalid("topics names a topic twice")
		}
		seen[t.Topic] = true
		w := wish{topic: t.Topic}
		switch {
		case (t.Epoch == "") != (t.Offset == nil):
			return invalid("epoch and offset go together")
		case t.Offset != nil && *t.Offset < 0, len(t.Epoch) > maxEpoch:
			return invalid("epoch and offset are those of a subscribed or message frame")
		case t.Offset != nil:
			w.from = &backplane.Position{Epoch: t.Epoch, Offset: *t.Offset}
		}
		r.wishes = append(r.wishes, w)
	}
	return nil
}

// maxEpoch is the longest epoch that is looked at; a topic's is a UUID.
const maxEpoch = 64

func (r *request) parseUnsubscribe(data []byte) error {
	var body unsubscribeBody
	if strict(data, &body) != nil {
		return invalid("unsubscribe has one member, topics: a list of names")
	}
	if wrong := countTopics(len(body.Topics)); wrong != nil {
		return wrong
	}
	for _, topic := range body.Topics {
		if wrong := checkTopic(topic); wrong != nil {
			return wrong
		}
	}
	r.topics = body.Topics
	return nil
}

func (r *request) parsePublish(data []byte) error {
	var body publishBody
	if strict(data, &body) != nil || body.Data == nil {
		return invalid("publish has the members topic and data")
	}
	if wrong := checkTopic(body.Topic); wrong != nil {
		return wrong
	}
	if len(body.Data) > backplane.MaxData {
		return &frameError{code: codeTooLarge, message: "data is at most 65536 bytes long"}
	}
	if holdsNUL(body.Data) {
		return invalid("data holds a NUL character")
	}
	r.topics, r.data = []string{body.Topic}, body.Data
	return nil
}

// holdsNUL reports whether a string of a JSON value holds U+0000, which JSON can only escape. The API refuses it, too.
func holdsNUL(value jsontext.Value) bool {
	if !bytes.Contains(value, []byte(`\u0000`)) {
		return false // or it is the text of one, after a backslash
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(value))
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return false
		}
		if token.Kind() == '"' && strings.ContainsRune(token.String(), 0) {
			return true
		}
	}
}

func (r *request) parsePresence(data []byte) error {
	var body presenceBody
	if strict(data, &body) != nil {
		return invalid("presence has one member, topic")
	}
	if wrong := checkTopic(body.Topic); wrong != nil {
		return wrong
	}
	r.topics = []string{body.Topic}
	return nil
}

// countTopics and checkTopic return error, and not *frameError, so that nil stays nil.
func countTopics(n int) error {
	if n == 0 || n > maxTopicsPerFrame {
		return invalid("topics has 1 to 256 entries")
	}
	return nil
}

func checkTopic(topic string) error {
	if !berth.ValidTopic(topic) {
		return invalid("a topic is 1 to 128 of A-Z a-z 0-9 . _ ~ : - that begin with a letter or digit")
	}
	return nil
}

// subscribedFrame answers a subscribe frame, and tells later that messages cannot be had.
type subscribedFrame struct {
	Type      string            `json:"type"`
	Topic     string            `json:"topic"`
	Epoch     string            `json:"epoch"`
	Offset    int64             `json:"offset"`
	Recovered backplane.Outcome `json:"recovered,omitempty"`
	Missing   *missingRange     `json:"missing,omitempty"`
	ReplyTo   string            `json:"reply_to,omitempty"`
}

// missingRange has both ends included.
type missingRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

type unsubscribedFrame struct {
	Type    string   `json:"type"`
	Topics  []string `json:"topics"`
	ReplyTo string   `json:"reply_to,omitempty"`
}

type publishedFrame struct {
	Type    string `json:"type"`
	Topic   string `json:"topic"`
	Epoch   string `json:"epoch"`
	Offset  int64  `json:"offset"`
	ReplyTo string `json:"reply_to,omitempty"`
}

type presenceFrame struct {
	Type    string `json:"type"`
	Topic   string `json:"topic"`
	Members int    `json:"members"`
	ReplyTo string `json:"reply_to,omitempty"`
}

// messageFrame renders a message of a topic. It is written by hand because it is the frame that there are most of: a
// topic's name and JSON text need no escaping.
func messageFrame(topic string, offset int64, data []byte) []byte {
	const members = `{"type":"message","topic":"","offset":,"data":}`
	frame := make([]byte, 0, len(members)+len(topic)+20+len(data))
	frame = append(append(frame, `{"type":"message","topic":"`...), topic...)
	frame = strconv.AppendInt(append(frame, `","offset":`...), offset, 10)
	return append(append(append(frame, `,"data":`...), data...), '}')
}

// directFrame renders a message to a user.
func directFrame(user string, data []byte) []byte {
	frame := append(append([]byte(`{"type":"message","user":"`), user...), `","data":`...)
	return append(append(frame, data...), '}')
}
