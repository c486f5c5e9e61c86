package media

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// playTick is the clock of a player: the length of an audio frame.
	playTick = 20 * time.Millisecond
	// playLag is how far a player may fall behind before it leaves frames out.
	playLag = 200 * time.Millisecond
)

// player loops the embedded clip to one client.
type player struct {
	clip *clip

	mu           sync.Mutex
	video, audio *FrameTrack
	wantKeyframe bool
}

// Negotiate adds the clip's tracks once there are lines for them. A client that supports one of the codecs
// only gets that.
func (p *player) Negotiate(_ context.Context, n *Negotiation) error {
	for _, line := range n.Lines() {
		if !line.Receives || line.Sending {
			continue
		}
		if err := p.add(n, line.Kind); err != nil && !errors.Is(err, ErrNoLine) {
			return err
		}
	}
	return nil
}

func (p *player) add(n *Negotiation, kind Kind) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	switch {
	case kind == KindVideo && p.video == nil:
		var t *FrameTrack
		if t, err = n.SendFrames("video/VP8"); err == nil {
			t.OnKeyframeRequest(p.requestKeyframe)
			p.video = t
		}
	case kind == KindAudio && p.audio == nil:
		var t *FrameTrack
		if t, err = n.SendFrames("audio/opus"); err == nil {
			p.audio = t
		}
	}
	return err
}

func (p *player) requestKeyframe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wantKeyframe = true
}

// Run sends what is due at each tick. Frames are due by the monotonic clock, so a late tick makes none late
// for good.
func (p *player) Run(ctx context.Context) error {
	ticker := time.NewTicker(playTick)
	defer ticker.Stop()
	video := cursor{frames: p.clip.video, length: p.clip.videoFrame}
	audio := cursor{frames: p.clip.audio, length: p.clip.audioFrame}
	start := time.Now()
	for {
		if err := p.sendDue(time.Since(start), &video, &audio); err != nil {
			if ctx.Err() != nil {
				return nil // a write that met the end of the peer
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (p *player) sendDue(elapsed time.Duration, video, audio *cursor) error {
	p.mu.Lock()
	videoTrack, audioTrack, wantKeyframe := p.video, p.audio, p.wantKeyframe
	p.wantKeyframe = false
	p.mu.Unlock()
	if wantKeyframe {
		video.toKeyframe()
	}
	return errors.Join(video.sendDue(elapsed, videoTrack), audio.sendDue(elapsed, audioTrack))
}

// Track ignores what the client sends.
func (p *player) Track(context.Context, *Track) error { return nil }

// Channel waits for the client to close it.
func (p *player) Channel(_ context.Context, c *Channel) error {
	for {
		if _, _, err := c.Read(); err != nil && !errors.Is(err, ErrMessageTooBig) {
			return err
		}
	}
}

// cursor is a position in a loop of frames.
type cursor struct {
	frames []frame
	length time.Duration // of each frame
	next   int           // index in frames
	played time.Duration
}

// toKeyframe moves to the next frame that can be decoded without another.
func (c *cursor) toKeyframe() {
	for range c.frames {
		if c.frames[c.next].key {
			return
		}
		c.next = (c.next + 1) % len(c.frames)
	}
}

// sendDue sends the frames whose time has come. Those too late are left out.
func (c *cursor) sendDue(elapsed time.Duration, t *FrameTrack) error {
	skipped := false
	for c.played <= elapsed {
		late := elapsed-c.played > playLag
		switch {
		case t == nil:
		case late:
			t.Skip(c.length)
			skipped = true
		default:
			if skipped {
				c.toKeyframe()
				skipped = false
			}
			if err := t.Write(c.frames[c.next].data, c.length); err != nil {
				return err
			}
		}
		c.next = (c.next + 1) % len(c.frames)
		c.played += c.length
	}
	return nil
}
