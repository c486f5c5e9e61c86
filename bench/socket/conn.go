package socket

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readBuffer holds most frames, and is all the memory that a connection keeps here while it is idle.
	readBuffer = 1 << 10
	// handshakeLimit bounds the upgrade when the context has no deadline.
	handshakeLimit = 30 * time.Second
	// deflateOffer is permessage-deflate as Berth takes it (RFC 7692).
	deflateOffer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
)

// Dialect is how a server pings by messages, and how its clients answer. Without a Ping nothing is answered.
type Dialect struct {
	Ping, Pong string
	Lines      bool // a message may have several lines, of which one may be a ping
}

// pinged says whether a message has a ping, and whether it has anything else.
func (d Dialect) pinged(message []byte) (ping, more bool) {
	switch {
	case d.Ping == "":
		return false, true
	case string(message) == d.Ping:
		return true, false
	case d.Lines:
		for line := range bytes.SplitSeq(message, []byte("\n")) {
			if string(line) == d.Ping {
				return true, true
			}
		}
	}
	return false, true
}

// Berth is the dialect of a worker.
func Berth() Dialect { return Dialect{Ping: `{"type":"ping"}`, Pong: `{"type":"pong"}`} }

// Options of a connection. The zero value is one without subprotocol, compression and pings.
type Options struct {
	Subprotocols []string // that are offered
	Compression  bool     // offer permessage-deflate without context takeover
	Dialect      Dialect
}

// RefusedError is an answer to the upgrade that is none.
type RefusedError struct {
	Status     int
	RetryAfter string // the header, as it came
}

func (e *RefusedError) Error() string { return fmt.Sprintf("upgrade refused with status %d", e.Status) }

// ClosedError is the close frame that ended a connection.
type ClosedError struct {
	Code   int // RFC 6455 section 7.4; 1005: the frame had none
	Reason string
}

func (e *ClosedError) Error() string { return fmt.Sprintf("closed with %d %q", e.Code, e.Reason) }

// Conn is one connection. One goroutine reads; the other methods are safe for concurrent use.
type Conn struct {
	tcp     net.Conn
	reader  *bufio.Reader
	dialect Dialect
	message []byte // of several frames, or larger than the buffer
	pings   atomic.Int64

	writing sync.Mutex
}

// Dial connects and upgrades. An answer other than 101 is a [*RefusedError].
func Dial(ctx context.Context, address string, options Options) (*Conn, error) {
	target, err := url.Parse(address)
	if err != nil || target.Scheme != "ws" {
		return nil, fmt.Errorf("%q is no ws URL", address)
	}
	var dialer net.Dialer
	tcp, err := dialer.DialContext(ctx, "tcp", target.Host)
	if err != nil {
		return nil, err
	}
	c := &Conn{tcp: tcp, reader: bufio.NewReaderSize(tcp, readBuffer), dialect: options.Dialect}
	release := c.within(ctx)
	err = errors.Join(c.upgrade(target, options), release())
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Within calls read, and bounds how long it waits by ctx. When ctx ends the connection is cut.
func (c *Conn) Within(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	release := c.within(ctx)
	message, err := read()
	if ended := release(); ended != nil {
		return nil, ended
	}
	return message, err
}

// within bounds what is read and written until release is called, which says whether ctx ended before.
func (c *Conn) within(ctx context.Context) (release func() error) {
	if _, bounded := ctx.Deadline(); !bounded {
		_ = c.tcp.SetDeadline(time.Now().Add(handshakeLimit)) // a connection that is gone says so when it is used
	}
	stop := context.AfterFunc(ctx, c.Close)
	return func() error {
		if !stop() {
			return ctx.Err()
		}
		_ = c.tcp.SetDeadline(time.Time{}) // as above
		return nil
	}
}

func (c *Conn) upgrade(target *url.URL, options Options) error {
	key := make([]byte, 16)
	_, _ = rand.Read(key) // it never fails
	var ask strings.Builder
	fmt.Fprintf(&ask, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: %s\r\n", target.RequestURI(), target.Host, base64.StdEncoding.EncodeToString(key))
	if len(options.Subprotocols) > 0 {
		fmt.Fprintf(&ask, "Sec-WebSocket-Protocol: %s\r\n", strings.Join(options.Subprotocols, ", "))
	}
	if options.Compression {
		fmt.Fprintf(&ask, "Sec-WebSocket-Extensions: %s\r\n", deflateOffer)
	}
	if _, err := c.tcp.Write([]byte(ask.String() + "\r\n")); err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	answer, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	_ = answer.Body.Close() // an upgrade has none, and another connection is closed
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return &RefusedError{Status: answer.StatusCode, RetryAfter: answer.Header.Get("Retry-After")}
	}
	return nil
}

// Run reads until the connection ends, and says why: a [*ClosedError], or what the network says. It answers pings, and hands
// all other messages to hear, which must not keep them.
func (c *Conn) Run(hear func(message []byte)) error {
	for {
		message, err := c.Read()
		if err != nil {
			c.Close()
			return err
		}
		ping, more := c.dialect.pinged(message)
		if more {
			hear(message)
		}
		if !ping {
			continue
		}
		if err := c.Write([]byte(c.dialect.Pong)); err != nil {
			c.Close()
			return err
		}
		c.pings.Add(1) // once it is answered
	}
}

// Pings is how many pings of the dialect were answered so far.
func (c *Conn) Pings() int64 { return c.pings.Load() }

// Close cuts the connection without a word. It may be called more than once.
func (c *Conn) Close() { _ = c.tcp.Close() } // whoever reads notices
