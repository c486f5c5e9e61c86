package rival

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/berthdev/berth/bench/socket"
)

// The JSON protocol of the library, as far as it is spoken here: https://centrifugal.dev/docs/transports/client_protocol.
const (
	connectFrame = `{"id":1,"connect":{}}`
	pingFrame    = `{}`
)

const (
	// attempt bounds one request.
	attempt = 15 * time.Second
	// idleConnections are kept to each process.
	idleConnections = 256
	// idleLimit is less than servers wait for the first request of a connection, which may have been made in vain.
	idleLimit = 2 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
)

// Join connects to a process and returns once it has answered. The caller goes on with [socket.Conn.Run].
func Join(ctx context.Context, address string) (*socket.Conn, error) {
	dialect := socket.Dialect{Ping: pingFrame, Pong: pingFrame, Lines: true}
	c, err := socket.Dial(ctx, "ws://"+address+"/connection/websocket", socket.Options{Dialect: dialect})
	if err != nil {
		return nil, fmt.Errorf("connect to centrifuge: %w", err)
	}
	if err := c.Write([]byte(connectFrame)); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to centrifuge: %w", err)
	}
	answer, err := c.Within(ctx, c.Read)
	if err == nil && !bytes.HasPrefix(answer, []byte(`{"id":1,"connect":`)) {
		err = fmt.Errorf("answered %q", answer)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to centrifuge: %w", err)
	}
	return c, nil
}

// Subscribe asks for channels. For each of them an answer follows that [Subscribed] knows.
func Subscribe(c *socket.Conn, channels ...string) error {
	for i, channel := range channels {
		frame := fmt.Appendf(nil, `{"id":%d,"subscribe":{"channel":%q}}`, i+2, channel)
		if err := c.Write(frame); err != nil {
			return err
		}
	}
	return nil
}

// Subscribed is how many answers to Subscribe a message has. The library may put several into one.
func Subscribed(message []byte) int { return bytes.Count(message, []byte(`,"subscribe":{`)) }

// Publisher publishes over HTTP. It is safe for concurrent use.
type Publisher struct{ client *http.Client }

// NewPublisher returns one that must be closed.
func NewPublisher() *Publisher {
	transport := &http.Transport{MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleLimit}
	return &Publisher{&http.Client{Timeout: attempt, Transport: transport}}
}

// Close drops the connections that are idle.
func (p *Publisher) Close() { p.client.CloseIdleConnections() }

// Publish sends data, which is JSON, to those who listen to a channel, by way of a process.
func (p *Publisher) Publish(ctx context.Context, address, channel string, data json.RawMessage) error {
	text, err := json.Marshal(map[string]any{"channel": channel, "data": data})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/publish", bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	said, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("publish: status %d: %s", response.StatusCode, said)
	}
	return err
}
