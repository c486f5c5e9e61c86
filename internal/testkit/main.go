package testkit

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// stopTimeout bounds the orderly stop of a server.
const stopTimeout = 20 * time.Second

// MainConfig is what Main may be told.
type MainConfig struct {
	// Postgres is closed after the tests. Default: none.
	Postgres *Postgres
	// Ignore are goroutines to tolerate, each with a comment that says why it
	// cannot be waited for. Default: none, as pgx and pgxpool leave none behind
	// once the server is gone.
	Ignore []goleak.Option
}

// Main runs the tests, stops what they shared and looks for goroutines that
// outlived them. It returns the exit code, for os.Exit in TestMain.
func Main(m interface{ Run() int }, cfg MainConfig) int {
	code := m.Run()
	if err := closePostgres(cfg.Postgres); err != nil {
		fmt.Fprintf(os.Stderr, "testkit: %v\n", err)
		code = max(code, 1)
	}
	if code != 0 {
		return code // a failed test may well have left something behind
	}
	if err := goleak.Find(cfg.Ignore...); err != nil {
		fmt.Fprintf(os.Stderr, "testkit: goroutines outlived the tests: %v\n", err)
		return 1
	}
	return 0
}

func closePostgres(p *Postgres) error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return p.Close(ctx)
}
