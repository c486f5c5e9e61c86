package berth_test

import (
	"context"
	"fmt"

	berth "github.com/berthdev/berth/sdk/go"
)

// A session that needs as much of a worker as four others takes four of its slots, all or none, here on a worker with
// the label gpu=a100. Packing keeps large holes for sessions like this one.
func ExampleCreateSession_weighted() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_tenant_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	placement, err := client.CreateSession(context.Background(), berth.CreateSession{
		Slots:    4,
		Selector: map[string]string{"gpu": "a100"},
		Strategy: berth.StrategyPack,
	})
	if err != nil {
		fmt.Println("not placed:", err)
		return
	}
	fmt.Println("four slots on", placement.Owner.WorkerID)
}
