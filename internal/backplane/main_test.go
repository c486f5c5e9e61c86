package backplane_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// databases is the server that these tests share.
var databases = testkit.NewPostgres(migrations.Up, testkit.PostgresConfig{})

func TestMain(m *testing.M) {
	if url := os.Getenv(asProcess); url != "" {
		if err := beProcess(context.Background(), url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// The models are in memory, so many checks are quick. The command line still wins.
	for name, value := range map[string]string{"rapid.checks": "1000", "rapid.steps": "100", "rapid.nofailfile": "true", "rapid.seed": fmt.Sprint(rand.Uint64())} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(testkit.Main(m, testkit.MainConfig{Postgres: databases}))
}
