package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// maxPublishBody is the most that a body with a message may hold, in bytes: the message, and a little around it.
const maxPublishBody = backplane.MaxData + 1<<10

const (
	fieldData   = "data"
	reasonTopic = "must be 1 to 128 of A-Z a-z 0-9 . _ ~ : - and begin with a letter or digit"
)

// Backplane carries messages of topics between processes; *backplane.Bus and *backplane.Memory do. Errors that wrap
// berth.ErrUnavailable say that the database is away.
type Backplane interface {
	// Publish appends messages to their topics, and says where they are and how many processes were told.
	Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error)
	// Subscribe calls deliver with the opening, what is kept after from, and each later message. With those that are
	// Replayed, deliver may wait.
	Subscribe(
		ctx context.Context, topic string, from *backplane.Position, deliver func(backplane.Message),
	) (*backplane.Subscription, error)
	// Presence says where a topic is and who listens.
	Presence(ctx context.Context, topic string) (backplane.Presence, error)
}

// Publish serves POST /v1/topics/{topic}/messages.
func (s *service) Publish(w http.ResponseWriter, r *http.Request, topic wire.Topic) {
	published, err := s.publish(w, r, topic)
	s.answer(w, r, http.StatusOK, published, err)
}

func (s *service) publish(w http.ResponseWriter, r *http.Request, topic string) (wire.PublishedMessage, error) {
	if err := checkTopic(topic); err != nil {
		return wire.PublishedMessage{}, err
	}
	data, err := s.readMessage(w, r, backplane.MaxData)
	if err != nil {
		return wire.PublishedMessage{}, err
	}
	published, err := s.deps.Backplane.Publish(r.Context(),
		backplane.Outgoing{Topic: berth.TenantTopic(callerOf(r.Context()).TenantID, topic), Data: data})
	if err != nil {
		return wire.PublishedMessage{}, backplaneError(err)
	}
	at := published[0].Position
	return wire.PublishedMessage{Topic: topic, Epoch: at.Epoch, Offset: at.Offset, Processes: published[0].Processes}, nil
}

// GetTopic serves GET /v1/topics/{topic}.
func (s *service) GetTopic(w http.ResponseWriter, r *http.Request, topic wire.Topic) {
	state, err := s.topicState(r.Context(), topic)
	s.answer(w, r, http.StatusOK, state, err)
}

func (s *service) topicState(ctx context.Context, topic string) (wire.TopicState, error) {
	if err := checkTopic(topic); err != nil {
		return wire.TopicState{}, err
	}
	seen, err := s.deps.Backplane.Presence(ctx, berth.TenantTopic(callerOf(ctx).TenantID, topic))
	if err != nil {
		return wire.TopicState{}, backplaneError(err)
	}
	return wire.TopicState{
		Topic: topic, Epoch: optional(seen.Position.Epoch), Offset: seen.Position.Offset,
		Members: seen.Members, Processes: seen.Processes,
	}, nil
}

func checkTopic(topic string) error {
	if !berth.ValidTopic(topic) {
		return berth.Invalid("topic", reasonTopic)
	}
	return nil
}

// readMessage returns the data of a body, without white space, which is what the limit counts.
func (s *service) readMessage(w http.ResponseWriter, r *http.Request, most int) (jsontext.Value, error) {
	body, err := readBodyUpTo(w, r, maxPublishBody, s.cfg.BodyTimeout)
	if err != nil {
		return nil, err
	}
	request, err := parseBody[wire.PublishRequest](body)
	if err != nil {
		return nil, err
	}
	if request.Data == nil {
		return nil, berth.Invalid(fieldData, "is required; it may be any JSON")
	}
	text := append(jsontext.Value(nil), request.Data...)
	if err := text.Compact(); err != nil {
		return nil, berth.Invalid(fieldData, "must be valid JSON")
	}
	if len(text) > most {
		return nil, berth.Refuse(berth.CodeTooLarge, fmt.Sprintf("data is at most %d KiB here, without white space.", most>>10))
	}
	return text, nil
}

// backplaneError says of an error of the backplane what a caller should know.
func backplaneError(err error) error {
	if errors.Is(err, backplane.ErrClosed) {
		return stopping()
	}
	return err
}
