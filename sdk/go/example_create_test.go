package berth_test

import (
	"context"
	"fmt"
	"time"

	berth "github.com/berthdev/berth/sdk/go"
)

// A backend places a session and passes the placement, which is JSON, to the device that will connect.
func ExampleClient_CreateSession() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_tenant_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	placement, err := client.CreateSession(ctx, berth.CreateSession{
		ID:       "order-4711", // repeating the call with it is safe
		Handler:  "echo",
		Region:   "eu-west",
		TTL:      30 * time.Minute,
		Metadata: map[string]any{"customer": "c-42"},
	})
	if err != nil {
		fmt.Println("not placed:", err)
		return
	}
	fmt.Println("placed on", placement.Owner.WorkerID, "generation", placement.Generation)
}
