package storm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/bench/load"
)

// Report is the result of a run. As it is, with curves, it is what is kept.
type Report struct {
	Machine Machine `json:"machine"`
	Cases   []Case  `json:"cases"`
}

// Machine is where and with what a run was.
type Machine struct {
	lab.Host

	Workers int `json:"workers"`
	APIs    int `json:"apis"`
}

// Case is one storm, or one planned move. Times count from the kill or the order.
type Case struct {
	Name    string         `json:"case"`
	Clients int            `json:"clients"`          // in all, without publishers
	Filled  float64        `json:"filled_per_s"`     // how fast they came at first
	Lost    int            `json:"lost"`             // clients whose connection ended
	Codes   map[string]int `json:"lost_codes"`       // by which code; 1006: without a close frame
	Broken  []string       `json:"broken,omitempty"` // how, in a planned move, where none should
	Back    int            `json:"back"`             // of those
	Moved   int            `json:"moved"`            // of those, to another worker

	ClearedS float64      `json:"cleared_s"` // until the last was welcomed
	ResumedS float64      `json:"resumed_s"` // until the last heard its topic again
	Away     Distribution `json:"away_s"`    // each from its loss to its welcome
	Model    *Model       `json:"model,omitempty"`
	Ratio    float64      `json:"cleared_to_model,omitempty"`

	Ways       map[string]int `json:"ways"`     // how clients came back
	Attempts   Distribution   `json:"attempts"` // handshakes and rejoins of each
	Handshakes int            `json:"handshakes"`
	Peak       float64        `json:"peak_handshakes_per_s"` // over 100 ms
	Asked      float64        `json:"peak_requests_per_s"`   // rejoins and handshakes that were asked for, over 100 ms
	Refusals   map[string]int `json:"refusals"`
	FailedAuth int            `json:"failed_authentications"`

	OthersLost   int `json:"others_lost"`   // clients of survivors whose connection ended
	SecondDeaths int `json:"second_deaths"` // survivors that ended, or were declared lost

	RoundTrip RoundTrip `json:"round_trip_ms"` // from a publish to each client of survivors that heard it
	Answer    RoundTrip `json:"answer_ms"`     // from a frame of a client of survivors to its worker's answer, without the database
	Messages  int       `json:"messages"`
	Missed    int       `json:"missed_offsets"` // or doubled
	Partial   int       `json:"incomplete_resumes"`
	Failed    int       `json:"failed_publishes"`

	// Tolerated is the p99 of round trips, in milliseconds, that is no fault whatever it was before: with few clients it was
	// next to nothing.
	Tolerated float64 `json:"tolerated_ms,omitempty"`

	ClientMiB float64 `json:"clients_mib"`      // memory of this process with all clients, and what cases before this one left
	GaveWay   bool    `json:"clients_gave_way"` // clients ran only when nobody else wanted the core
	CPU       *CPU    `json:"cpu_s,omitempty"`
	Curve     []Point `json:"curve"`
}

// CPU is what the storm cost, in seconds of one core, from the kill or the order until all were back.
type CPU struct {
	Clients  float64 `json:"clients"`
	Workers  float64 `json:"workers"`
	APIs     float64 `json:"apis"`
	Postgres float64 `json:"postgres"`
}

// minus is what was used since.
func (c CPU) minus(before CPU) *CPU {
	return &CPU{
		Clients: c.Clients - before.Clients, Workers: c.Workers - before.Workers, APIs: c.APIs - before.APIs,
		Postgres: c.Postgres - before.Postgres,
	}
}

// Point is how far the storm was at a time: clients that were back, and what arrived since the last point.
type Point struct {
	S          float64 `json:"s"`
	Back       int     `json:"back"`
	Handshakes int     `json:"handshakes"` // that succeeded
	Requests   int     `json:"requests"`   // rejoins and handshakes that were asked for, but for those that nobody answered
}

// RoundTrip is what clients of survivors see, before and during the storm.
type RoundTrip struct {
	Before Distribution `json:"before"`
	First  Distribution `json:"first_5s"` // of those during it
	During Distribution `json:"during"`
	Ratio  float64      `json:"p99_ratio"`
}

func newRoundTrip(before, first, during []float64) RoundTrip {
	r := RoundTrip{Before: newDistribution(before), First: newDistribution(first), During: newDistribution(during)}
	if r.Before.P99 > 0 {
		r.Ratio = r.During.P99 / r.Before.P99
	}
	return r
}

// Distribution describes values by nearest rank.
type Distribution struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func newDistribution(values []float64) Distribution {
	sorted := slices.Sorted(slices.Values(values))
	return Distribution{
		N: len(sorted), P50: load.Percentile(sorted, 50), P99: load.Percentile(sorted, 99), Max: load.Percentile(sorted, 100),
	}
}

// The bars of a storm.
const (
	maxRatio     = 2.0 // of the model's time
	maxRoundTrip = 3.0 // of the p99 before
)

// Planned says whether the case is a planned move, whose clients are told to go.
func (c Case) Planned() bool { return c.Name == CaseDrain || c.Name == CaseShed }

// Faults lists what is not as it should be. A storm without jitter is there to be worse: only what no storm may do counts.
func (c Case) Faults() (faults []string) {
	fault := func(is bool, format string, args ...any) {
		if is {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	fault(c.Lost == 0, "nobody lost a connection")
	fault(c.Back < c.Lost, "%d of %d clients did not come back", c.Lost-c.Back, c.Lost)
	fault(c.FailedAuth > 0, "%d failed authentications", c.FailedAuth)
	fault(c.SecondDeaths > 0, "%d more workers died", c.SecondDeaths)
	fault(c.OthersLost > 0, "%d clients of other workers lost their connection", c.OthersLost)
	fault(c.Missed > 0 || c.Partial > 0, "%d messages missed or doubled, %d resumes incomplete", c.Missed, c.Partial)
	if c.Planned() {
		fault(c.Codes["1006"] > 0, "%d clients saw 1006", c.Codes["1006"])
		fault(c.Name == CaseDrain && c.Moved < c.Lost, "%d clients are still where they were", c.Lost-c.Moved)
		return faults
	}
	if c.Name == CaseNoJitter {
		return faults
	}
	fault(c.Ratio > maxRatio, "all were back after %.1f times the model's %.1f s", c.Ratio, c.modelled())
	fault(c.RoundTrip.Ratio > maxRoundTrip && c.RoundTrip.During.P99 > c.Tolerated, "p99 of survivors' round trips rose to %.1f times what it was", c.RoundTrip.Ratio)
	return faults
}

// refusals counts answers that were refusals. Requests that nobody answered are none, and neither is a 4410, by which a
// planned move sends clients to their rejoin.
func (c Case) refusals() (n int) {
	for what, times := range c.Refusals {
		if !strings.HasSuffix(what, noAnswer) && what != sentOn {
			n += times
		}
	}
	return n
}

func (c Case) modelled() float64 {
	if c.Model == nil {
		return 0
	}
	return c.Model.ClearsS
}

// Short is the report without curves: the form of --json.
type Short struct {
	Storm map[string]ShortCase `json:"storm"`
}

// ShortCase is a case in a few numbers.
type ShortCase struct {
	Clients      int      `json:"clients"`
	Lost         int      `json:"lost"`
	Back         int      `json:"back"`
	ClearedS     float64  `json:"cleared_s"`
	ModelS       float64  `json:"model_s,omitempty"`
	Ratio        float64  `json:"cleared_to_model,omitempty"`
	Peak         float64  `json:"peak_handshakes_per_s"`
	Refusals     int      `json:"refusals"`
	FailedAuth   int      `json:"failed_authentications"`
	SecondDeaths int      `json:"second_deaths"`
	BeforeP99    float64  `json:"before_p99_ms"` // of round trips
	DuringP99    float64  `json:"during_p99_ms"`
	P99Ratio     float64  `json:"p99_ratio"`
	AnswerBefore float64  `json:"answer_before_p99_ms"`
	AnswerDuring float64  `json:"answer_during_p99_ms"`
	AnswerRatio  float64  `json:"answer_p99_ratio"`
	Abnormal     int      `json:"closes_1006"`
	Missed       int      `json:"missed_offsets"`
	Faults       []string `json:"faults"`
}

// Short leaves out curves and distributions.
func (r *Report) Short() any {
	short := Short{Storm: map[string]ShortCase{}}
	for _, c := range r.Cases {
		short.Storm[c.Name] = ShortCase{
			Clients: c.Clients, Lost: c.Lost, Back: c.Back, ClearedS: c.ClearedS, ModelS: c.modelled(), Ratio: c.Ratio,
			Peak: c.Peak, Refusals: c.refusals(), FailedAuth: c.FailedAuth, SecondDeaths: c.SecondDeaths,
			BeforeP99: c.RoundTrip.Before.P99, DuringP99: c.RoundTrip.During.P99, P99Ratio: c.RoundTrip.Ratio,
			AnswerBefore: c.Answer.Before.P99, AnswerDuring: c.Answer.During.P99, AnswerRatio: c.Answer.Ratio,
			Abnormal: c.Codes["1006"], Missed: c.Missed + c.Partial, Faults: append([]string{}, c.Faults()...),
		}
	}
	return short
}

// Lasting is how long a full run takes, roughly, for people.
const Lasting = 10 * time.Minute
