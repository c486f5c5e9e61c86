package media

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pion/webrtc/v4/pkg/media/ivfreader"
	"github.com/pion/webrtc/v4/pkg/media/oggreader"
)

// The clip is described, with the commands that made it, in clip/README.md.
var (
	//go:embed clip/play.ivf
	clipVideo []byte
	//go:embed clip/play.ogg
	clipAudio []byte
)

const clipAudioFrame = 20 * time.Millisecond // one packet per page

// clip is a loop of VP8 and Opus frames of equal total length.
type clip struct {
	video, audio           []frame
	videoFrame, audioFrame time.Duration
}

// frame is one encoded frame.
type frame struct {
	data []byte
	key  bool
}

// loadClip reads the embedded clip.
func loadClip() (*clip, error) {
	c := &clip{audioFrame: clipAudioFrame}
	if err := c.readVideo(bytes.NewReader(clipVideo)); err != nil {
		return nil, fmt.Errorf("media: embedded video: %w", err)
	}
	if err := c.readAudio(bytes.NewReader(clipAudio)); err != nil {
		return nil, fmt.Errorf("media: embedded audio: %w", err)
	}
	// Without this the loops would drift apart: encoders append a packet for their delay.
	length := (c.videoFrame * time.Duration(len(c.video))).Round(c.audioFrame)
	if n := int(length / c.audioFrame); n < len(c.audio) {
		c.audio = c.audio[:n]
	}
	if len(c.video) == 0 || len(c.audio) == 0 || !c.video[0].key {
		return nil, errors.New("media: embedded clip is empty or does not begin with a key frame")
	}
	return c, nil
}

func (c *clip) readVideo(r io.Reader) error {
	ivf, header, err := ivfreader.NewWith(r)
	if err != nil {
		return err
	}
	c.videoFrame = time.Second * time.Duration(header.TimebaseNumerator) / time.Duration(header.TimebaseDenominator)
	for {
		data, _, err := ivf.ParseNextFrame()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// RFC 6386 section 9.1: the lowest bit is 0 in key frames.
		c.video = append(c.video, frame{data: data, key: len(data) > 0 && data[0]&1 == 0})
	}
}

func (c *clip) readAudio(r io.Reader) error {
	ogg, _, err := oggreader.NewWith(r)
	if err != nil {
		return err
	}
	for {
		data, _, err := ogg.ParseNextPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if bytes.HasPrefix(data, []byte("OpusTags")) {
			continue
		}
		c.audio = append(c.audio, frame{data: data, key: true})
	}
}
