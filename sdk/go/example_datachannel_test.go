package berth_test

import (
	"context"
	"fmt"

	"github.com/pion/webrtc/v4"

	berth "github.com/berthdev/berth/sdk/go"
)

// Messages need no track. Bind runs for the channel of each link, so that callbacks survive a move.
func ExampleDataChannel() {
	var placement berth.Placement // decoded from what the backend sent
	client, err := berth.New(berth.Config{})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	conn, err := client.Connect(context.Background(), &placement, berth.ConnectConfig{
		DataChannels: []berth.DataChannel{{
			Label: "chat",
			Bind: func(channel *webrtc.DataChannel) {
				channel.OnOpen(func() { _ = channel.SendText("ahoy") })
				channel.OnMessage(func(m webrtc.DataChannelMessage) { fmt.Println(string(m.Data)) })
			},
		}},
	})
	if err != nil {
		fmt.Println("not connected:", err)
		return
	}
	_ = conn.Close()
}
