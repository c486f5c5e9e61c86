package berth_test

import (
	"context"
	"fmt"
	"time"

	berth "github.com/berthdev/berth/sdk/go"
)

// A start that finds no room can wait for its turn instead of being refused. The order's number makes it safe to repeat,
// by another process too: both get the same session.
func ExampleCreateSession_wait() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_tenant_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	// Longer than the wait: whoever leaves loses the turn.
	ctx, cancel := context.WithTimeout(context.Background(), 35*time.Second)
	defer cancel()
	placement, err := client.CreateSession(ctx, berth.CreateSession{
		Wait:           20 * time.Second,
		IdempotencyKey: "order-4711",
	})
	switch after, told := berth.RetryAfter(err); {
	case err == nil && placement.Replayed:
		fmt.Println("somebody placed it before:", placement.ID)
	case err == nil:
		fmt.Println("placed on", placement.Owner.WorkerID)
	case berth.IsAtCapacity(err) && told:
		fmt.Println("still full after 20 s: come back in", after)
	default:
		fmt.Println("not placed:", err)
	}
}
