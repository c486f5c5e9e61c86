package connections

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/berthdev/berth/internal/openfile"
)

// The subjects.
const (
	Berth           = "berth"             // one subscription each
	BerthIdle       = "berth_none"        // no subscription
	BerthMany       = "berth_many"        // Config.Topics subscriptions each
	BerthCompressed = "berth_compression" // one subscription each, BERTH_COMPRESSION=on and offered by clients
	Centrifuge      = "centrifuge"        // one subscription each, the library's defaults
	CentrifugeLean  = "centrifuge_lean"   // the same with its options for idle connections
)

// subject is how one is set up.
type subject struct {
	name       string
	topics     int
	compressed bool
	centrifuge bool
	lean       bool
}

// Subjects lists them in the order of reports.
func Subjects() []string {
	return []string{Berth, BerthIdle, BerthMany, BerthCompressed, Centrifuge, CentrifugeLean}
}

func (c Config) subject(name string) subject {
	s := subject{name: name, topics: 1}
	switch name {
	case BerthIdle:
		s.topics = 0
	case BerthMany:
		s.topics = c.Topics
	case BerthCompressed:
		s.compressed = true
	case Centrifuge:
		s.centrifuge = true
	case CentrifugeLean:
		s.centrifuge, s.lean = true, true
	}
	return s
}

// maxTopics is how many topics a connection of the library may have by default. Berth's limit is higher.
const maxTopics = 128

// Config says what to measure. Its zero value, with a Binary, is the measurement that is reported.
type Config struct {
	// Binary is the path of berth. Required.
	Binary string
	// Centrifuge is the path of the server of bench/centrifuge. Empty: its subjects are left out.
	Centrifuge string
	// N is the number of connections, an even one. Each takes a file of this process and one of the server's. Default 10,000.
	N int
	// Topics is how many subscriptions a connection of BerthMany has. Default 20.
	Topics int
	// Rounds of all subjects. Default 3.
	Rounds int
	// Subjects to measure. Default: all.
	Subjects []string
	// Ping is the time between two pings of a connection. Default 10 s.
	Ping time.Duration
	// Version of the binary, for the report.
	Version string
	// Logger receives one line for each measurement. Default: none.
	Logger *slog.Logger
	// Progress is told of each measurement that is done. Default: nobody is.
	Progress func(done, total int, what string)
}

func (c Config) withDefaults() Config {
	c.N = cmp.Or(c.N, 10_000)
	c.Topics = cmp.Or(c.Topics, 20)
	c.Rounds = cmp.Or(c.Rounds, 3)
	c.Ping = cmp.Or(c.Ping, 10*time.Second)
	if len(c.Subjects) == 0 {
		c.Subjects = Subjects()
	}
	if c.Centrifuge == "" {
		c.Subjects = slices.DeleteFunc(slices.Clone(c.Subjects), func(name string) bool { return c.subject(name).centrifuge })
	}
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
	require(c.N >= 2 && c.N <= 1_000_000 && c.N%2 == 0, "n", "must be an even number from 2 to 1000000")
	require(c.Topics >= 1 && c.Topics <= maxTopics, "topics", fmt.Sprintf("must be 1 to %d", maxTopics))
	require(c.Rounds >= 1 && c.Rounds <= 100, "rounds", "must be 1 to 100")
	require(c.Ping >= time.Second && c.Ping <= time.Minute, "ping", "must be 1s to 1m")
	require(len(c.Subjects) > 0, "only", "names nothing that can be measured without --centrifuge")
	for _, name := range c.Subjects {
		require(slices.Contains(Subjects(), name), "only", fmt.Sprintf("has %q, which is none of %q", name, Subjects()))
	}
	if limit, err := openfile.Raise(); err == nil {
		require(limit.Soft >= openfile.Need(c.N), "n",
			fmt.Sprintf("needs a limit of %d open files, and it is %d: raise it, or open fewer", openfile.Need(c.N), limit.Soft))
	}
	return errors.Join(errs...)
}
