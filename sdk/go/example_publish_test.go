package berth_test

import (
	"context"
	"fmt"

	berth "github.com/berthdev/berth/sdk/go"
)

// A backend publishes to everybody in a room, and to every connection of one user.
func ExampleClient_Publish() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_tenant_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	ctx := context.Background()
	// Peers say who they are, and which topics they may use, when they are placed.
	if _, err := client.CreateSession(ctx, berth.CreateSession{
		Peer: berth.Peer{User: "ann", Topics: &berth.TopicGrant{Subscribe: []string{"room:7"}}},
	}); err != nil {
		fmt.Println("not placed:", err)
		return
	}
	published, err := client.Publish(ctx, "room:7", map[string]string{"text": "hello, all"})
	if err != nil {
		fmt.Println("not published:", err)
		return
	}
	fmt.Println("message", published.Offset, "went to", published.Processes, "processes")
	delivery, err := client.PublishToUser(ctx, "ann", map[string]string{"text": "hello, Ann"})
	if err != nil {
		fmt.Println("not sent:", err)
		return
	}
	if delivery.Connections == 0 {
		fmt.Println("ann is not connected")
	}
}
