package fanout

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/berthdev/berth/internal/openfile"
)

// The systems and the loads.
const (
	Berth      = "berth"
	Centrifuge = "centrifuge_redis"

	Large = "large"
	Pairs = "pairs"
)

// Systems lists them in the order of reports.
func Systems() []string { return []string{Berth, Centrifuge} }

// Loads lists them in the order of reports.
func Loads() []string { return []string{Large, Pairs} }

// Config says what to measure. Its zero value, with a Binary, is the measurement that is reported.
type Config struct {
	// Binary is the path of berth. Required.
	Binary string
	// Centrifuge is the path of the server of bench/centrifuge. Empty: only Berth is measured.
	Centrifuge string
	// Loads to measure. Default: both.
	Loads []string
	// Processes that hold connections. Default 10.
	Processes int
	// Members of the large topic, an even number. Default 1,000.
	Members int
	// Rate of messages to the large topic, a second. Default 20.
	Rate float64
	// Pairs is the number of topics with two members. Default 1,000.
	Pairs int
	// PairRate of messages to each of these topics, a second. Default 1.
	PairRate float64
	// Size of a message in bytes, at least 40. Default 128.
	Size int
	// Warmup comes before each measurement. Default 3 s.
	Warmup time.Duration
	// Window of each measurement. Default 20 s.
	Window time.Duration
	// Rounds of all loads and systems. Default 3.
	Rounds int
	// History is how many messages centrifuge keeps of each channel. Default: none.
	History int
	// Version of the binary, for the report.
	Version string
	// Logger receives one line for each measurement. Default: none.
	Logger *slog.Logger
	// Progress is told of each measurement that is done. Default: nobody is.
	Progress func(done, total int, what string)
}

func (c Config) withDefaults() Config {
	if len(c.Loads) == 0 {
		c.Loads = Loads()
	}
	c.Processes = cmp.Or(c.Processes, 10)
	c.Members = cmp.Or(c.Members, 1000)
	c.Rate = cmp.Or(c.Rate, 20)
	c.Pairs = cmp.Or(c.Pairs, 1000)
	c.PairRate = cmp.Or(c.PairRate, 1)
	c.Size = cmp.Or(c.Size, 128)
	c.Warmup = cmp.Or(c.Warmup, 3*time.Second)
	c.Window = cmp.Or(c.Window, 20*time.Second)
	c.Rounds = cmp.Or(c.Rounds, 3)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Progress == nil {
		c.Progress = func(int, int, string) {}
	}
	return c
}

// systems are those that can be measured.
func (c Config) systems() []string {
	if c.Centrifuge == "" {
		return []string{Berth}
	}
	return Systems()
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
	for _, name := range c.Loads {
		require(slices.Contains(Loads(), name), "only", fmt.Sprintf("has %q, which is none of %q", name, Loads()))
	}
	require(c.Processes >= 1 && c.Processes <= 64, "processes", "must be 1 to 64")
	require(c.Members >= 2 && c.Members <= 100_000 && c.Members%2 == 0, "members", "must be an even number from 2 to 100000")
	require(c.Pairs >= 1 && c.Pairs <= 50_000, "pairs", "must be 1 to 50000")
	require(c.Rate > 0 && c.Rate <= 10_000, "rate", "must be more than 0, and 10000 at most")
	require(c.PairRate > 0 && c.PairRate*float64(c.Pairs) <= 10_000, "pair-rate", "must be more than 0, and 10000 at most for all pairs together")
	require(c.Size >= minSize && c.Size <= 60<<10, "size", fmt.Sprintf("must be %d to %d bytes", minSize, 60<<10))
	require(c.Warmup > 0 && c.Window > 0 && c.Warmup+c.Window <= time.Hour, "warmup, window", "must be more than 0, and an hour at most together")
	require(c.Rounds >= 1 && c.Rounds <= 100, "rounds", "must be 1 to 100")
	require(c.History >= 0 && c.History <= 100_000, "centrifuge-history", "must be 0 to 100000")
	if limit, err := openfile.Raise(); err == nil {
		most := max(c.Members, 2*c.Pairs)
		require(limit.Soft >= openfile.Need(most), "members, pairs",
			fmt.Sprintf("need a limit of %d open files, and it is %d", openfile.Need(most), limit.Soft))
	}
	return errors.Join(errs...)
}

// shape is a load in numbers.
type shape struct {
	name    string
	members int     // of all topics together
	topics  int     // each member listens to one
	rate    float64 // of messages to all topics together, a second
}

func (c Config) shape(name string) shape {
	if name == Large {
		return shape{name: name, members: c.Members, topics: 1, rate: c.Rate}
	}
	return shape{name: name, members: 2 * c.Pairs, topics: c.Pairs, rate: c.PairRate * float64(c.Pairs)}
}

// topicOf a member.
func (s shape) topicOf(member int) int { return member / (s.members / s.topics) }

// topic is the name of one.
func (s shape) topic(i int) string { return fmt.Sprintf("%s:%d", s.name, i) }
