package media

import (
	"fmt"
	"strings"
	"time"

	"github.com/pion/rtp"
)

// PacketTrack forwards RTP packets that came from a Track to a client. The sources may change: to the
// client it stays one stream with consecutive sequence numbers. Safe for concurrent use.
//
// The codec of each packet is chosen among those negotiated, so a client may send any of them. (Repair
// packets, RTX, are described by the first codec alone; a client that sends another gets plain media.)
type PacketTrack struct {
	outbound
	splice splice
}

// Write sends a packet that was read from a track with the given codec. Header extensions are not
// forwarded, as they describe the other connection.
func (t *PacketTrack) Write(packet []byte, codec Codec) error {
	var p rtp.Packet
	if err := p.Unmarshal(packet); err != nil {
		return fmt.Errorf("media: forward packet: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bound == nil {
		return nil
	}
	payloadType, ok := outgoingType(codec, t.bound.codecs)
	if !ok {
		return fmt.Errorf("%w: codec %s", ErrNoLine, codec.MimeType)
	}
	header := rtp.Header{
		Version:     p.Version,
		Padding:     p.Padding,
		Marker:      p.Marker,
		PayloadType: payloadType,
		PaddingSize: p.Header.PaddingSize,
	}
	header.SequenceNumber, header.Timestamp = t.splice.next(p.SSRC, p.SequenceNumber, p.Timestamp, codec.ClockRate, time.Now())
	return t.send(t.bound, &header, p.Payload)
}

// outgoingType finds the payload type for a codec: the same number if it means the same codec, as it does
// on an echo, or the first codec of that name and, if there is one, of that format.
func outgoingType(in Codec, codecs []Codec) (uint8, bool) {
	best := -1
	for i, c := range codecs {
		if !strings.EqualFold(c.MimeType, in.MimeType) {
			continue
		}
		if c.PayloadType == in.PayloadType {
			return c.PayloadType, true
		}
		if best < 0 || (c.Fmtp == in.Fmtp && codecs[best].Fmtp != in.Fmtp) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	return codecs[best].PayloadType, true
}

// splice renumbers packets so that streams that follow each other become one. SRTP and jitter buffers
// take a jump backwards for old packets.
type splice struct {
	started       bool
	source        uint32
	sequenceShift uint16
	timeShift     uint32
	lastSequence  uint16 // highest sent
	lastTime      uint32
	lastAt        time.Time
}

// next returns the outgoing numbers of a packet.
func (s *splice) next(source uint32, sequence uint16, timestamp, clockRate uint32, now time.Time) (uint16, uint32) {
	switch {
	case !s.started:
		s.started, s.source = true, source
		s.lastSequence, s.lastTime = sequence-1, timestamp
	case source != s.source:
		s.source = source
		elapsed := uint32(max(1, now.Sub(s.lastAt).Seconds()*float64(clockRate)))
		s.sequenceShift = s.lastSequence + 1 - sequence
		s.timeShift = s.lastTime + elapsed - timestamp
	}
	outSequence, outTime := sequence+s.sequenceShift, timestamp+s.timeShift
	if outSequence-s.lastSequence < 1<<15 { // not a late one
		s.lastSequence, s.lastTime, s.lastAt = outSequence, outTime, now
	}
	return outSequence, outTime
}
