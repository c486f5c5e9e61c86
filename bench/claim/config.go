package claim

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/berthdev/berth/bench/front"
	"github.com/berthdev/berth/internal/berth"
)

// The subjects that are Berth itself.
const (
	// Berth places: POST /v1/sessions, answered with tokens.
	Berth = "berth"
	// Lifecycle places over HTTP, connects the first peer as the worker does, and ends the session as the worker does
	// when its last peer leaves. One call is all three.
	Lifecycle = "berth_lifecycle"
)

// Subjects lists what is measured by default, in the order of reports.
func Subjects() []string {
	return []string{
		front.HTTPNull, front.RedisArticle, front.RedisLuaLiteral, front.RedisLua, front.PGNaive, Berth, Lifecycle,
	}
}

// Config says how much to measure. Its zero value, with a Binary, is the measurement that is reported.
type Config struct {
	// Binary is the path of berth. Required.
	Binary string
	// Subjects to measure. Default: those that Subjects lists.
	Subjects []string
	// Connections is how many requests are in flight. Default 64.
	Connections int
	// Workers is how many workers there are to choose from. Default 1,000.
	Workers int
	// Slots is how many sessions one of them may hold. All of a measurement must fit, so the default grows with the
	// machine: 100 per core, from 200 to 800.
	Slots int
	// Rounds is how often each subject is measured. Default 3.
	Rounds int
	// Warmup comes before each measurement. Default 2 s.
	Warmup time.Duration
	// Window is how long each measurement takes. Default 5 s.
	Window time.Duration
	// ProfileDir receives a CPU profile of each server process. Default: none, since a profile costs a little itself.
	ProfileDir string
	// Version of the binary, for the report.
	Version string
	// Logger receives one line for each measurement. Default: none.
	Logger *slog.Logger

	// databaseSettings are further settings of Postgres.
	databaseSettings map[string]string
}

func (c Config) withDefaults() Config {
	if len(c.Subjects) == 0 {
		c.Subjects = Subjects()
	}
	c.Connections = cmp.Or(c.Connections, 64)
	c.Workers = cmp.Or(c.Workers, 1000)
	c.Slots = cmp.Or(c.Slots, min(max(100*runtime.NumCPU(), 200), 800))
	c.Rounds = cmp.Or(c.Rounds, 3)
	c.Warmup = cmp.Or(c.Warmup, 2*time.Second)
	c.Window = cmp.Or(c.Window, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate says which field cannot be, and what could. Zero values stand for defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	require := func(ok bool, field, remedy string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s %s", field, remedy))
		}
	}
	known := Subjects()
	for _, name := range c.Subjects {
		require(slices.Contains(known, name), "subjects", fmt.Sprintf("has %q, which is none of %q", name, known))
	}
	require(c.Binary != "", "binary", "must be the path of berth")
	require(c.Connections >= 1 && c.Connections <= 10_000, "connections", "must be 1 to 10000")
	require(c.Workers >= 1 && c.Workers <= 10_000, "workers", "must be 1 to 10000")
	require(c.Slots >= 1 && c.Slots <= berth.MaxWorkerSlots, "slots", fmt.Sprintf("must be 1 to %d", berth.MaxWorkerSlots))
	require(c.Rounds >= 1 && c.Rounds <= 1000, "rounds", "must be 1 to 1000")
	require(c.Warmup >= 0 && c.Warmup <= time.Hour, "warmup", "must be 0s to 1h")
	require(c.Window >= 50*time.Millisecond && c.Window <= time.Hour, "window", "must be 50ms to 1h")
	return errors.Join(errs...)
}
