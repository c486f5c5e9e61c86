package berth

import (
	"context"
	"net/http"
)

// Published says where a message is.
type Published struct {
	Topic     string `json:"topic"`
	Epoch     string `json:"epoch"`     // identity of the topic's history
	Offset    int64  `json:"offset"`    // 1 for the first message of the epoch, then dense
	Processes int    `json:"processes"` // how many processes with listeners were told
}

// Delivery says whom a message to a user reached.
type Delivery struct {
	User        string `json:"user"`
	Connections int    `json:"connections"` // of the user, on the workers that were told; 0: the user is not connected
	Workers     int    `json:"workers"`     // that were told
}

// Topic is where a topic is, and how many listen.
type Topic struct {
	Topic     string `json:"topic"`
	Epoch     string `json:"epoch,omitzero"` // empty: nobody used it within the last hour
	Offset    int64  `json:"offset"`         // of the newest message
	Members   int    `json:"members"`        // who listen
	Processes int    `json:"processes"`      // that they are connected to
}

// messageBody is a message on the wire.
type messageBody struct {
	Data any `json:"data"`
}

// Publish sends data, which is encoded as JSON, to everybody who listens to a topic: at most 64 KiB. It needs a tenant's key.
//
// It is tried once, since a message that is sent again may come twice: after an *Error that is unavailable, or none that is an
// *Error, it may have been published.
func (c *Client) Publish(ctx context.Context, topic string, data any) (*Published, error) {
	var p Published
	if err := c.send(ctx, data, &p, "v1", "topics", topic, "messages"); err != nil {
		return nil, err
	}
	return &p, nil
}

// PublishToUser sends data, which is encoded as JSON, to every connection of a user: at most 60 KiB. Nothing is kept for who
// is not connected, which is no error. It needs a tenant's key, and is tried once, as Publish is.
func (c *Client) PublishToUser(ctx context.Context, user string, data any) (*Delivery, error) {
	if err := checkID("user", user); err != nil {
		return nil, err
	}
	var d Delivery
	if err := c.send(ctx, data, &d, "v1", "users", user, "messages"); err != nil {
		return nil, err
	}
	return &d, nil
}

// Topic reads where a topic is, and how many listen. It needs a tenant's key.
func (c *Client) Topic(ctx context.Context, topic string) (*Topic, error) {
	if topic == "" {
		return nil, invalid("topic", "name a topic")
	}
	u, err := c.endpoint("v1", "topics", topic)
	if err != nil {
		return nil, err
	}
	var t Topic
	if err := c.do(ctx, call{method: http.MethodGet, url: u, token: c.apiKey, answer: &t}); err != nil {
		return nil, err
	}
	return &t, nil
}

// send posts a message. The path's segment before the last is who gets it.
func (c *Client) send(ctx context.Context, data, answer any, path ...string) error {
	if path[len(path)-2] == "" {
		return invalid("topic", "name a topic")
	}
	u, err := c.endpoint(path...)
	if err != nil {
		return err
	}
	return c.doLimited(ctx, call{
		method: http.MethodPost, url: u, token: c.apiKey, body: messageBody{Data: data}, answer: answer,
	}, 0)
}
