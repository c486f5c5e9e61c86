package storm

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// The cases of a run.
const (
	CaseKill     = "kill"      // a worker is killed
	CaseExpired  = "expired"   // the same, and the tokens of all clients are over
	CaseNoJitter = "no_jitter" // the same as kill, with clients that wait for all of each window
	CaseDrain    = "drain"     // a worker is drained
	CaseShed     = "shed"      // a worker is added, and the others shed
)

// Cases lists them in the order in which they run.
func Cases() []string { return []string{CaseKill, CaseExpired, CaseNoJitter, CaseDrain, CaseShed} }

// Config says how much to measure. Its zero value, with a Binary, is the measurement that is reported.
type Config struct {
	// Binary is the path of berth. Required.
	Binary string
	// Cases to run. Default: all.
	Cases []string
	// N is the number of clients, over all workers, of the cases that kill and of shed. Default 5,000.
	N int
	// Drained is about how many clients the worker has that is drained. Default 2,000.
	Drained int
	// Workers is the number of worker processes before a case begins. Default 3.
	Workers int
	// APIs is the number of API processes. Default 2.
	APIs int
	// Topics that clients listen to, each to one; as many others publish, each to its own. Default 40.
	Topics int
	// Every is between two messages of a topic. Default 2 s.
	Every time.Duration
	// Before is how long round trips are measured before anything happens. Default 10 s.
	Before time.Duration
	// Deadline of the drain. Default 60 s.
	Deadline time.Duration
	// Spread is over how long a worker sheds. Default 30 s.
	Spread time.Duration
	// Patience is how long clients may take to be back after the last was lost. Default 2 min.
	Patience time.Duration
	// UpgradeRate is the most handshakes per second that one worker takes. Default 2,000, as a worker's own.
	UpgradeRate int
	// RejoinRate is the most rejoins per second that one API process works on. Default 500, as an API's own.
	RejoinRate int
	// Version of the binary, for the report.
	Version string
	// Logger receives one line for each case. Default: none.
	Logger *slog.Logger
	// Progress is told how many of the clients of a case are where they should be. Default: nobody is.
	Progress func(done, total int, what string)
}

func (c Config) withDefaults() Config {
	if len(c.Cases) == 0 {
		c.Cases = Cases()
	}
	c.N = cmp.Or(c.N, 5000)
	c.Drained = cmp.Or(c.Drained, 2000)
	c.Workers = cmp.Or(c.Workers, 3)
	c.APIs = cmp.Or(c.APIs, 2)
	c.Topics = cmp.Or(c.Topics, 40)
	c.Every = cmp.Or(c.Every, 2*time.Second)
	c.Before = cmp.Or(c.Before, 10*time.Second)
	c.Deadline = cmp.Or(c.Deadline, time.Minute)
	c.Spread = cmp.Or(c.Spread, 30*time.Second)
	c.Patience = cmp.Or(c.Patience, 2*time.Minute)
	c.UpgradeRate = cmp.Or(c.UpgradeRate, 2000)
	c.RejoinRate = cmp.Or(c.RejoinRate, 500)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Progress == nil {
		c.Progress = func(int, int, string) {}
	}
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
	require(c.Binary != "", "binary", "must be the path of berth")
	for _, name := range c.Cases {
		require(slices.Contains(Cases(), name), "only", fmt.Sprintf("has %q, which is none of %q", name, Cases()))
	}
	c.sizes(require)
	c.times(require)
	return errors.Join(errs...)
}

// sizes says which number cannot be.
func (c Config) sizes(require func(ok bool, field, remedy string)) {
	require(c.N >= 2*c.Workers && c.N <= 100_000, "n", "must be two for each worker to 100000")
	require(c.Drained >= 2 && c.Drained <= 50_000, "drained", "must be 2 to 50000")
	require(c.Workers >= 2 && c.Workers <= 32, "workers", "must be 2 to 32, since one is lost")
	require(c.APIs >= 1 && c.APIs <= 16, "apis", "must be 1 to 16")
	require(c.Topics >= 1 && c.Topics <= 1000, "topics", "must be 1 to 1000")
	require(c.UpgradeRate >= 1 && c.UpgradeRate <= 1_000_000, "upgrade-rate", "must be 1 to 1000000")
	require(c.RejoinRate >= 1 && c.RejoinRate <= 1_000_000, "rejoin-rate", "must be 1 to 1000000")
}

// times says which duration cannot be.
func (c Config) times(require func(ok bool, field, remedy string)) {
	require(c.Every >= 50*time.Millisecond && c.Every <= time.Minute, "every", "must be 50ms to 1m")
	require(c.Before >= c.Every && c.Before <= 10*time.Minute, "before", "must be 10m at most, and not shorter than every")
	require(c.Deadline >= time.Second && c.Deadline <= time.Hour && c.Deadline%time.Second == 0, "deadline", "must be 1s to 1h in whole seconds")
	require(c.Spread >= time.Second && c.Spread <= time.Hour && c.Spread%time.Second == 0, "spread", "must be 1s to 1h in whole seconds")
	require(c.Patience >= 10*time.Second && c.Patience <= time.Hour, "patience", "must be 10s to 1h")
}
