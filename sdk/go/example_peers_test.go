package berth_test

import (
	"context"
	"fmt"

	berth "github.com/berthdev/berth/sdk/go"
)

// A second peer joins the session on the same worker, with a token of its own.
func ExampleClient_AddPeer() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_tenant_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	viewer, err := client.AddPeer(context.Background(), "order-4711", berth.Peer{Role: "viewer"})
	if err != nil {
		fmt.Println("not added:", err)
		return
	}
	fmt.Println(viewer.Peer.ID, "connects to", viewer.Owner.SignalingURL)
}
