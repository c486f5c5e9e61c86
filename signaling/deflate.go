package signaling

import (
	"bytes"
	"compress/flate"
	"fmt"
	"sync"
)

// compressible is the size from which a frame is compressed. Smaller ones gain nothing.
const compressible = 512

// deflater compresses one frame at a time. It takes some hundred KiB, so that there are only as many as frames are written
// at once.
type deflater struct {
	out    bytes.Buffer
	writer *flate.Writer
}

var deflaters = sync.Pool{New: func() any {
	d := &deflater{}
	d.writer, _ = flate.NewWriter(&d.out, flate.BestSpeed) // the level is a valid one
	return d
}}

// deflate returns the payload as permessage-deflate has it, without context takeover (RFC 7692 section 7.2.1). It is valid
// until the next call.
func (d *deflater) deflate(payload []byte) ([]byte, error) {
	d.out.Reset()
	d.writer.Reset(&d.out)
	if _, err := d.writer.Write(payload); err != nil {
		return nil, fmt.Errorf("compress frame: %w", err)
	}
	if err := d.writer.Flush(); err != nil {
		return nil, fmt.Errorf("compress frame: %w", err)
	}
	return bytes.TrimSuffix(d.out.Bytes(), []byte{0, 0, 0xff, 0xff}), nil
}
