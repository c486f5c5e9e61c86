package berth_test

import (
	"context"
	"fmt"
	"time"

	berth "github.com/berthdev/berth/sdk/go"
)

// An operator empties a worker before its host is replaced.
func ExampleClient_DrainWorker() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_operator_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	ctx := context.Background()
	worker, err := client.DrainWorker(ctx, "w-eu-3", berth.DrainWorker{Deadline: 10 * time.Minute})
	if err != nil {
		fmt.Println("not drained:", err)
		return
	}
	fmt.Println(worker.Used, "sessions stay until", worker.DrainDeadline)
	if _, err := client.UndrainWorker(ctx, "w-eu-3"); err != nil {
		fmt.Println("not undrained:", err)
	}
}
