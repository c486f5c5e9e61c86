package berth_test

import (
	"context"
	"fmt"

	berth "github.com/berthdev/berth/sdk/go"
)

// A program with a signaling of its own asks who owns the session now. A Conn does this by itself.
func ExampleClient_Rejoin() {
	var lost berth.Placement // the one whose owner went away
	client, err := berth.New(berth.Config{})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	current, err := client.Rejoin(context.Background(), berth.RejoinRequest{
		URL:        lost.RejoinURL,
		Token:      lost.RejoinToken,
		Generation: lost.Generation,
		Lost:       true,
	})
	if berth.IsEnded(err) {
		fmt.Println("the session is over")
		return
	}
	if err != nil {
		fmt.Println("not yet:", err)
		return
	}
	fmt.Println("now on", current.Owner.WorkerID)
}
