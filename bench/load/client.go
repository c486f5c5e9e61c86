package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// maxBody bounds the answers that a client accepts, in bytes.
const maxBody = 1 << 20

// Client is one HTTP/1.1 connection that is kept alive. It knows just enough of the protocol to read the answers of a
// server that behaves. One goroutine uses it.
type Client struct {
	conn   net.Conn
	reader *bufio.Reader
	body   []byte
}

// Response is an answer. Body is valid until the next request.
type Response struct {
	Status int
	Body   []byte
}

// Dial connects to host:port. No request of the client may be open after the deadline.
func Dial(ctx context.Context, address string, deadline time.Time) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Client{conn: conn, reader: bufio.NewReaderSize(conn, 16<<10)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Do sends a request, as AppendRequest made it, and reads the answer.
func (c *Client) Do(request []byte) (Response, error) {
	if _, err := c.conn.Write(request); err != nil {
		return Response{}, fmt.Errorf("send request: %w", err)
	}
	response, err := c.read()
	if err != nil {
		return Response{}, fmt.Errorf("read answer: %w", err)
	}
	return response, nil
}

// AppendRequest appends a request with a bearer key and a JSON body to buffer. No key or no body is left out.
func AppendRequest(buffer []byte, method, host, path, key string, body []byte) []byte {
	buffer = append(buffer, method...)
	buffer = append(buffer, ' ')
	buffer = append(buffer, path...)
	buffer = append(buffer, " HTTP/1.1\r\nHost: "...)
	buffer = append(buffer, host...)
	if key != "" {
		buffer = append(buffer, "\r\nAuthorization: Bearer "...)
		buffer = append(buffer, key...)
	}
	if body != nil {
		buffer = append(buffer, "\r\nContent-Type: application/json\r\nContent-Length: "...)
		buffer = strconv.AppendInt(buffer, int64(len(body)), 10)
	}
	buffer = append(buffer, "\r\n\r\n"...)
	return append(buffer, body...)
}

func (c *Client) read() (Response, error) {
	status, err := c.status()
	if err != nil {
		return Response{}, err
	}
	length, chunked, err := c.header()
	if err != nil {
		return Response{}, err
	}
	c.body = c.body[:0]
	if chunked {
		err = c.chunks()
	} else {
		err = c.take(length)
	}
	return Response{Status: status, Body: c.body}, err
}

// line reads one line without its end. It is valid until the next read.
func (c *Client) line() ([]byte, error) {
	line, err := c.reader.ReadSlice('\n')
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), err
}

// status reads "HTTP/1.1 201 Created".
func (c *Client) status() (int, error) {
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, fmt.Errorf("%q is no HTTP/1.1 status line", line)
	}
	return strconv.Atoi(string(line[9:12]))
}

// header reads up to the empty line, and finds out how the body ends.
func (c *Client) header() (length int, chunked bool, err error) {
	for {
		line, err := c.line()
		if err != nil {
			return 0, false, err
		}
		if len(line) == 0 {
			return length, chunked, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, false, fmt.Errorf("content length %q is no number", value)
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		case bytes.EqualFold(name, []byte("Connection")) && bytes.EqualFold(value, []byte("close")):
			return 0, false, errors.New("the server wants to close the connection")
		}
	}
}

// chunks reads a chunked body. Trailers are not expected.
func (c *Client) chunks() error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil {
			return fmt.Errorf("chunk size %q is no number", line)
		}
		if err := c.take(int(size)); err != nil {
			return err
		}
		if _, err := c.line(); err != nil || size == 0 {
			return err
		}
	}
}

// take appends n bytes to the body.
func (c *Client) take(n int) error {
	before := len(c.body)
	if n < 0 || before+n > maxBody {
		return fmt.Errorf("the answer is larger than %d bytes", maxBody)
	}
	c.body = append(c.body, make([]byte, n)...)
	_, err := io.ReadFull(c.reader, c.body[before:])
	return err
}
