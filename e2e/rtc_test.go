package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"

	sdk "github.com/berthdev/berth/sdk/go"
)

// someFrames are enough packets to call it a flow.
const someFrames = 15

// rtcPeer is a program with the Go client: it counts what comes back.
type rtcPeer struct {
	conn  *sdk.Conn
	audio atomic.Int64 // packets received, over all links
	video atomic.Int64
}

// connect opens the connection of a placement. A peer of an echo session sends and gets its own back; of a play session, it
// only receives. The connection is closed when the test ends, which ends the session.
func connect(t testing.TB, client *sdk.Client, placement *sdk.Placement, handler string) *rtcPeer {
	t.Helper()
	if handler == "echo" {
		return connectWith(t, client, placement, sdk.ConnectConfig{Tracks: sendMedia(t)})
	}
	return connectWith(t, client, placement, sdk.ConnectConfig{
		Receive: []webrtc.RTPCodecType{webrtc.RTPCodecTypeAudio, webrtc.RTPCodecTypeVideo},
	})
}

// connectWith connects a peer whose packets are counted.
func connectWith(t testing.TB, client *sdk.Client, placement *sdk.Placement, config sdk.ConnectConfig) *rtcPeer {
	t.Helper()
	p := &rtcPeer{}
	config.OnTrack = p.count
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := client.Connect(ctx, placement, config)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	p.conn = conn
	t.Cleanup(func() {
		_ = conn.Close() // it returns nil
		<-conn.Done()
	})
	return p
}

// count reads a track until its link is over.
func (p *rtcPeer) count(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
	counter := &p.audio
	if track.Kind() == webrtc.RTPCodecTypeVideo {
		counter = &p.video
	}
	for {
		if _, _, err := track.ReadRTP(); err != nil {
			return
		}
		counter.Add(1)
	}
}

// sendMedia makes an audio and a video track and feeds them until the test ends. Nobody decodes what is in them.
func sendMedia(t testing.TB) []webrtc.TrackLocal {
	t.Helper()
	var feeders sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); feeders.Wait() })
	var tracks []webrtc.TrackLocal
	for mime, size := range map[string]int{webrtc.MimeTypeOpus: 80, webrtc.MimeTypeVP8: 600} {
		track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: mime}, mime, "e2e")
		if err != nil {
			t.Fatal(err)
		}
		tracks = append(tracks, track)
		feeders.Go(func() { feed(ctx, track, size) })
	}
	return tracks
}

func feed(ctx context.Context, track *webrtc.TrackLocalStaticSample, size int) {
	const pace = 20 * time.Millisecond
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = track.WriteSample(media.Sample{Data: make([]byte, size), Duration: pace}) // between links nobody takes it
		}
	}
}

// flows waits until audio and video rise.
func (p *rtcPeer) flows(t testing.TB) {
	t.Helper()
	audio, video := p.audio.Load()+someFrames, p.video.Load()+someFrames
	eventually(t, func() error {
		if err := p.conn.Err(); err != nil {
			return finalError{err}
		}
		if a, v := p.audio.Load(), p.video.Load(); a < audio || v < video {
			return fmt.Errorf("%d of %d audio and %d of %d video packets, %v", a, audio, v, video, p.conn.State())
		}
		return nil
	})
}

// movedBeyond waits until the peer is connected with a larger generation.
func (p *rtcPeer) movedBeyond(t testing.TB, generation int64) sdk.Placement {
	t.Helper()
	eventually(t, func() error {
		if err := p.conn.Err(); err != nil {
			return finalError{err}
		}
		if s := p.conn.Stats(); s.State != sdk.StateConnected || s.Generation <= generation {
			return fmt.Errorf("%s at generation %d, not beyond %d; last loss: %s", s.State, s.Generation, generation, fmt.Sprint(s.LastLoss))
		}
		return nil
	})
	return p.conn.Placement()
}
