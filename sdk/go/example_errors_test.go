package berth_test

import (
	"context"
	"fmt"

	berth "github.com/berthdev/berth/sdk/go"
)

// A refusal says whether and when to ask again. Short waits were done already: what arrives here needs a decision.
func ExampleRetryAfter() {
	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: "berth_tenant_..."})
	if err != nil {
		fmt.Println("configuration:", err)
		return
	}
	_, err = client.CreateSession(context.Background(), berth.CreateSession{})
	switch after, told := berth.RetryAfter(err); {
	case err == nil:
		fmt.Println("placed")
	case berth.IsConcurrentSessions(err):
		fmt.Println("end a session first")
	case berth.IsAtCapacity(err) && told:
		fmt.Println("full: tell the user to come back in", after)
	case berth.IsRetryable(err):
		fmt.Println("try again later:", err)
	default:
		fmt.Println("a bug in this program, or a wrong key:", err)
	}
}
