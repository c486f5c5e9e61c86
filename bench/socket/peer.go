package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	sdk "github.com/berthdev/berth/sdk/go"
)

// subprotocol of Berth's signaling.
const subprotocol = "berth.v1"

// Join connects to the worker of a placement and returns once the peer was welcomed. A refusal is a [*RefusedError] before the
// upgrade, and a [*ClosedError] after it. The caller goes on with [Conn.Run].
func Join(ctx context.Context, placement *sdk.Placement, options Options) (*Conn, error) {
	options.Subprotocols = []string{subprotocol, "token." + placement.Token}
	options.Dialect = Berth()
	c, err := Dial(ctx, placement.Owner.SignalingURL, options)
	if err != nil {
		return nil, fmt.Errorf("connect peer %s of %s: %w", placement.Peer.ID, placement.ID, err)
	}
	first, err := c.Within(ctx, c.Read)
	if err == nil && Kind(first) != "welcome" {
		err = fmt.Errorf("the first frame is %q", first)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("welcome of peer %s of %s: %w", placement.Peer.ID, placement.ID, err)
	}
	return c, nil
}

// Kind is the type of a frame of Berth, whose servers put it first. Empty: it is none.
func Kind(frame []byte) string {
	rest, found := bytes.CutPrefix(frame, []byte(`{"type":"`))
	if !found {
		return ""
	}
	kind, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(kind)
}

// MaxTopics is how many topics a connection may listen to, and a frame may name.
const MaxTopics = 256

// Subscribe asks for topics from now on. A subscribed frame for each of them follows.
func (c *Conn) Subscribe(topics ...string) error {
	type wish struct {
		Topic string `json:"topic"`
	}
	frame := struct {
		Type   string `json:"type"`
		Topics []wish `json:"topics"`
	}{Type: "subscribe"}
	for _, topic := range topics {
		frame.Topics = append(frame.Topics, wish{topic})
	}
	data, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	return c.Write(data)
}
