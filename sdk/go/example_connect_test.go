package berth_test

import (
	"context"
	"fmt"
	"time"

	"github.com/pion/webrtc/v4"

	berth "github.com/berthdev/berth/sdk/go"
)

// A peer sends a track and receives what the handler sends back, on this worker and on the next one if this one dies.
func ExampleClient_Connect() {
	var placement berth.Placement // decoded from what the backend sent
	client, err := berth.New(berth.Config{})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	codec := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus}
	microphone, err := webrtc.NewTrackLocalStaticSample(codec, "audio", "microphone")
	if err != nil {
		fmt.Println("track:", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := client.Connect(ctx, &placement, berth.ConnectConfig{
		Tracks: []webrtc.TrackLocal{microphone},
		OnTrack: func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
			for {
				if _, _, err := track.ReadRTP(); err != nil {
					return // this link is over; the next one calls OnTrack again
				}
			}
		},
		OnState: func(change berth.StateChange) {
			fmt.Println(change.State, change.Placement.Owner.WorkerID)
		},
	})
	if err != nil {
		fmt.Println("not connected:", err)
		return
	}
	defer func() { _ = conn.Close() }()
	<-conn.Done()
	fmt.Println("over:", conn.Err())
}
