package berth_test

import (
	"context"
	"fmt"

	berth "github.com/berthdev/berth/sdk/go"
)

// Lists are iterators: pages are fetched as they are needed.
func ExampleClient_Sessions() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_tenant_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	ctx := context.Background()
	for session, err := range client.Sessions(ctx, berth.SessionFilter{State: "awaiting_rejoin"}) {
		if err != nil {
			fmt.Println("list:", err)
			return
		}
		fmt.Println("ending", session.ID)
		if err := client.EndSession(ctx, session.ID); err != nil {
			fmt.Println("end:", err)
		}
	}
}
