package failover

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// The parts of a run.
const (
	PartKills   = "kills"
	PartLeaders = "leaders"
	PartMany    = "many"
	PartPauses  = "pauses"
	PartCost    = "cost"
	PartLengths = "lengths"
	PartArticle = "article"
)

// Parts lists them in the order in which they run. All but the article's run by default.
func Parts() []string {
	return []string{PartKills, PartLeaders, PartMany, PartPauses, PartCost, PartLengths, PartArticle}
}

// Detectors lists what is measured by default, in the order of reports.
func Detectors() []string {
	return []string{string(berth.DetectPresence), string(berth.DetectSweep), string(berth.DetectLease)}
}

// Config says how much to measure. Its zero value, with a Binary, is the measurement that is reported.
type Config struct {
	// Binary is the path of berth. Required.
	Binary string
	// Parts of the run. Default: all but the article's.
	Parts []string
	// Detectors to measure. Default: all three, and presence alone for leaders and many.
	Detectors []string
	// Kills per detector. Default 20.
	Kills int
	// LeaderKills is how often each case of leaders, and of two workers at once, is repeated. Default 3.
	LeaderKills int
	// LengthKills is how often a worker is killed at each length of the lease. Default 5.
	LengthKills int
	// Calls that are live during faults. Default 20.
	Calls int
	// Workers is the number of worker processes. Default 3.
	Workers int
	// APIs is the number of API processes. Default 2.
	APIs int
	// Crowd is the number of calls on one worker whose other peers are elsewhere, all with sockets. Default 5,000; each
	// takes two file descriptors here.
	Crowd int
	// Pauses are the lengths of pauses. Default 5, 8, 10, 12 and 30 s.
	Pauses []time.Duration
	// Levels are numbers of calls at which ticks are measured. Default 50, 100, 200, 500 and 1,000.
	Levels []int
	// Rows are numbers of sessions without sockets at which ticks of presence are measured. Default 1,000, 10,000 and
	// 100,000.
	Rows []int
	// RowWorkers is how many workers those have. Default 1,000.
	RowWorkers int
	// Ticks is how many ticks are measured at each level. Default 20.
	Ticks int
	// Leases are the lengths at which detection is measured. Default 1, 2, 4, 6 and 10 s.
	Leases []time.Duration
	// Version of the binary, for the report.
	Version string
	// Logger receives one line for each measurement. Default: none.
	Logger *slog.Logger
	// Progress is told of each step that is done. Default: nobody is.
	Progress func(done, total int, what string)
}

func (c Config) withDefaults() Config {
	if len(c.Parts) == 0 {
		c.Parts = slices.DeleteFunc(Parts(), func(part string) bool { return part == PartArticle })
	}
	c.Kills = cmp.Or(c.Kills, 20)
	c.LeaderKills = cmp.Or(c.LeaderKills, 3)
	c.LengthKills = cmp.Or(c.LengthKills, 5)
	c.Calls = cmp.Or(c.Calls, 20)
	c.Workers = cmp.Or(c.Workers, 3)
	c.APIs = cmp.Or(c.APIs, 2)
	c.Crowd = cmp.Or(c.Crowd, 5000)
	c.RowWorkers = cmp.Or(c.RowWorkers, 1000)
	c.Ticks = cmp.Or(c.Ticks, 20)
	c.Pauses = listOr(c.Pauses, 5*time.Second, 8*time.Second, 10*time.Second, 12*time.Second, 30*time.Second)
	c.Levels = listOr(c.Levels, 50, 100, 200, 500, 1000)
	c.Rows = listOr(c.Rows, 1000, 10_000, 100_000)
	c.Leases = listOr(c.Leases, time.Second, 2*time.Second, 4*time.Second, 6*time.Second, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Progress == nil {
		c.Progress = func(int, int, string) {}
	}
	return c
}

func listOr[T any](list []T, otherwise ...T) []T {
	if len(list) > 0 {
		return list
	}
	return otherwise
}

// detectors are those of most parts.
func (c Config) detectors() []string { return listOr(c.Detectors, Detectors()...) }

// leaderDetectors are those of leaders and many: the one that promises something then, unless others are asked for.
func (c Config) leaderDetectors() []string { return listOr(c.Detectors, string(berth.DetectPresence)) }

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
	for _, part := range c.Parts {
		require(slices.Contains(Parts(), part), "only", fmt.Sprintf("has %q, which is none of %q", part, Parts()))
	}
	for _, name := range c.Detectors {
		require(slices.Contains(Detectors(), name), "detector", fmt.Sprintf("has %q, which is none of %q", name, Detectors()))
	}
	require(c.Kills >= 1 && c.Kills <= 1000, "kills", "must be 1 to 1000")
	require(c.LeaderKills >= 1 && c.LeaderKills <= 100, "leader-kills", "must be 1 to 100")
	require(c.LengthKills >= 1 && c.LengthKills <= 100, "length-kills", "must be 1 to 100")
	require(c.Calls >= 2 && c.Calls <= 5000, "calls", "must be 2 to 5000")
	require(c.Workers >= 3 && c.Workers <= 32, "workers", "must be 3 to 32, since two are killed at once")
	require(c.APIs >= 2 && c.APIs <= 16, "apis", "must be 2 to 16, since one is killed")
	require(c.Crowd >= 1 && c.Crowd <= 50_000, "crowd", "must be 1 to 50000")
	require(c.Ticks >= 1 && c.Ticks <= 10_000, "ticks", "must be 1 to 10000")
	require(c.RowWorkers >= 1 && c.RowWorkers <= 10_000, "row-workers", "must be 1 to 10000")
	require(within(c.Pauses, 100*time.Millisecond, 10*time.Minute), "pauses", "must be 100ms to 10m each")
	require(within(c.Leases, time.Second, time.Minute), "leases", "must be 1s to 1m each")
	require(within(c.Levels, 1, 5000) && slices.IsSorted(c.Levels), "levels", "must be 1 to 5000 each, and grow")
	require(within(c.Rows, 1, 10_000_000) && slices.IsSorted(c.Rows), "rows", "must be 1 to 10000000 each, and grow")
	return errors.Join(errs...)
}

// within says whether all of a list are in a range.
func within[T cmp.Ordered](list []T, least, most T) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return v < least || v > most })
}

// steps is how many steps the run has, for progress.
func (c Config) steps() int {
	n := len(c.detectors())
	total := 0
	for part, steps := range map[string]int{
		PartKills:   n * c.Kills,
		PartLeaders: len(c.leaderDetectors()) * len(leaderCases()) * c.LeaderKills,
		PartMany:    len(c.leaderDetectors()) * (c.LeaderKills + 1),
		PartPauses:  n * len(c.Pauses),
		PartCost:    n*len(c.Levels) + len(c.Rows),
		PartLengths: 2 * len(c.Leases) * c.LengthKills,
		PartArticle: len(articleDetectors()) * (c.Kills + len(c.Pauses) + len(c.Levels)),
	} {
		if slices.Contains(c.Parts, part) {
			total += steps
		}
	}
	return total
}
