package berth_test

import (
	"context"
	"fmt"

	berth "github.com/berthdev/berth/sdk/go"
)

// Listen to topics without media. The connection resumes by itself after losses and moves, and says what is missing.
func ExampleClient_Connect_listen() {
	ctx := context.Background()
	client, err := berth.New(berth.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	placement := &berth.Placement{} // that a backend was given for this peer
	conn, err := client.Connect(ctx, placement, berth.ConnectConfig{
		SignalingOnly: true,
		Topics:        []string{"room:7"},
		OnMessage:     func(m berth.Message) { fmt.Println(m.Offset, string(m.Data)) },
		OnSubscribed: func(s berth.Subscribed) {
			if s.Recovered == berth.RecoveredPart || s.Recovered == berth.RecoveredNone {
				fmt.Println("read the room anew: messages are missing")
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }() // nil
	if _, err := conn.Publish(ctx, "room:7", map[string]string{"text": "hello"}); err != nil {
		fmt.Println(err)
	}
	<-conn.Done()
}
