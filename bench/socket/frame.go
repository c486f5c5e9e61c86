package socket

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
)

// The parts of a frame's head (RFC 6455 section 5.2, RFC 7692 section 6).
const (
	bitFinal      = 0x80
	bitCompressed = 0x40
	bitMask       = 0x80

	opContinuation = 0x0
	opText         = 0x1
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

// maxMessage bounds what a server may send in one message.
const maxMessage = 1 << 20

var errTooLong = errors.New("a message is too long")

// Read returns the next message, which is valid until the next call. It answers pings of the protocol, and a close frame,
// after which it returns a [*ClosedError].
func (c *Conn) Read() ([]byte, error) {
	c.message = c.message[:0]
	packed, started := false, false
	for {
		first, payload, err := c.frame()
		if err != nil {
			return nil, err
		}
		switch op := first & 0x0f; op {
		case opPing:
			err = c.write(opPong, payload)
		case opPong:
		case opClose:
			return nil, c.closed(payload)
		case opText, opContinuation:
			packed = packed || first&bitCompressed != 0
			if first&bitFinal != 0 && !started {
				return unpack(payload, packed)
			}
			started = true
			if len(c.message)+len(payload) > maxMessage {
				return nil, errTooLong
			}
			if c.message = append(c.message, payload...); first&bitFinal != 0 {
				return unpack(c.message, packed)
			}
		default:
			err = fmt.Errorf("unexpected frame %x", op)
		}
		if err != nil {
			return nil, err
		}
	}
}

// frame reads one frame. What it returns is in the buffer where it fits.
func (c *Conn) frame() (first byte, payload []byte, err error) {
	head, err := c.reader.Peek(2)
	if err != nil {
		return 0, nil, err
	}
	first = head[0]
	size, length := int64(head[1]&^bitMask), 2
	switch size {
	case 126:
		length = 4
	case 127:
		length = 10
	}
	if head[1]&bitMask != 0 {
		return 0, nil, errors.New("a server masked a frame")
	}
	if head, err = c.reader.Peek(length); err != nil {
		return 0, nil, err
	}
	switch length {
	case 4:
		size = int64(binary.BigEndian.Uint16(head[2:]))
	case 10:
		size = int64(binary.BigEndian.Uint64(head[2:]))
	}
	if size < 0 || size > maxMessage {
		return 0, nil, errTooLong
	}
	if _, err = c.reader.Discard(length); err != nil {
		return 0, nil, err
	}
	payload, err = c.payload(int(size))
	return first, payload, err
}

func (c *Conn) payload(size int) ([]byte, error) {
	if size > c.reader.Size() {
		payload := make([]byte, size)
		_, err := io.ReadFull(c.reader, payload)
		return payload, err
	}
	payload, err := c.reader.Peek(size)
	if err != nil {
		return nil, err
	}
	_, err = c.reader.Discard(size)
	return payload, err
}

// unpack inflates a message that is compressed (RFC 7692 section 7.2.2).
func unpack(message []byte, packed bool) ([]byte, error) {
	if !packed {
		return message, nil
	}
	tail := []byte{0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff}
	return io.ReadAll(io.LimitReader(flate.NewReader(io.MultiReader(bytes.NewReader(message), bytes.NewReader(tail))), maxMessage))
}

// closed answers a close frame, and is the error that it means.
func (c *Conn) closed(payload []byte) error {
	ended := &ClosedError{Code: 1005}
	if len(payload) >= 2 {
		ended.Code, ended.Reason = int(binary.BigEndian.Uint16(payload)), string(payload[2:])
	}
	_ = c.write(opClose, payload[:min(2, len(payload))]) // the connection ends either way
	return ended
}

// Write sends a text message.
func (c *Conn) Write(message []byte) error { return c.write(opText, message) }

func (c *Conn) write(op byte, payload []byte) error {
	frame := append(make([]byte, 0, len(payload)+14), op|bitFinal)
	switch size := len(payload); {
	case size < 126:
		frame = append(frame, bitMask|byte(size))
	case size < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, bitMask|126), uint16(size))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, bitMask|127), uint64(size))
	}
	var mask [4]byte
	binary.BigEndian.PutUint32(mask[:], rand.Uint32())
	frame = append(frame, mask[:]...)
	for i, b := range payload {
		frame = append(frame, b^mask[i&3])
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.tcp.Write(frame)
	return err
}
