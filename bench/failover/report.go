package failover

import (
	"slices"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// Report is the result of a run. As it is, with every sample, it is what is kept.
type Report struct {
	Machine    Machine    `json:"machine"`
	Cases      []Case     `json:"cases"`
	Pauses     []Pause    `json:"pauses"`
	Costs      []Cost     `json:"costs"`
	Lengths    []Length   `json:"lengths"`
	Article    *Article   `json:"article,omitempty"`
	Collateral Collateral `json:"collateral"`
}

// Case is one kind of kill, as often as it was repeated.
type Case struct {
	Part     string       `json:"part"`
	Name     string       `json:"name"`
	Detector string       `json:"detector"`
	N        int          `json:"n"` // faults
	Gap      Distribution `json:"gap_ms"`
	Confirm  Distribution `json:"confirm_ms"`
	Notified Distribution `json:"notified_ms"`
	Missed   int          `json:"missed"` // survivors that were told of nothing
	Claims   *Claims      `json:"claims,omitempty"`
	Samples  []Sample     `json:"samples"`
}

func newCase(part, name, detector string, samples []Sample) Case {
	c := Case{Part: part, Name: name, Detector: detector, N: len(samples), Samples: samples}
	c.Gap = newDistribution(gather(samples, func(s Sample) []float64 { return s.Gap }))
	c.Confirm = newDistribution(gather(samples, func(s Sample) []float64 { return s.Confirm }))
	c.Notified = newDistribution(c.notified())
	for _, s := range samples {
		c.Missed += s.Missed
	}
	return c
}

func (c Case) notified() []float64 {
	return gather(c.Samples, func(s Sample) []float64 { return s.Notified })
}

func gather(samples []Sample, of func(Sample) []float64) []float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, of(s)...)
	}
	return all
}

// Length is detection at one length of the lease.
type Length struct {
	Detector string       `json:"detector"`
	Lease    float64      `json:"lease_s"`
	N        int          `json:"n"`
	Notified Distribution `json:"notified_ms"`
}

// Article is a run with the article's numbers.
type Article struct {
	Cases  []Case  `json:"cases"`
	Pauses []Pause `json:"pauses"`
	Costs  []Cost  `json:"costs"`
}

// Short is the report in a few numbers, in milliseconds: the form of --json.
type Short struct {
	Kills       []ShortKills `json:"kills"`
	LeaderKills []ShortKills `json:"leader_kills"`
	Pauses      []ShortPause `json:"pauses"`
	TickCost    []ShortCost  `json:"tick_cost"`
	Collateral  Collateral   `json:"collateral"`
}

// ShortKills is all kills of a part with one detector. Gap and notified count from the kill, confirm from the gap.
type ShortKills struct {
	Detector string        `json:"detector"`
	N        int           `json:"n"`
	Gap      shortRange    `json:"gap_ms"`
	Confirm  shortRange    `json:"confirm_ms"`
	Notified shortNotified `json:"notified_ms"`
}

type shortRange struct {
	P50 float64 `json:"p50"`
	Max float64 `json:"max"`
}

type shortNotified struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// ShortPause is all pauses of one length with one detector.
type ShortPause struct {
	Detector       string  `json:"detector"`
	Seconds        float64 `json:"pause_s"`
	FalsePositives int     `json:"false_positives"`
	SessionsLost   int     `json:"sessions_lost"`
}

// ShortCost is the median tick at one number of sessions.
type ShortCost struct {
	Detector string  `json:"detector"`
	Sessions int     `json:"sessions"`
	Workers  int     `json:"workers"`
	P50      float64 `json:"p50_ms"`
}

// Short leaves out samples, and all that the article's numbers gave.
func (r *Report) Short() any {
	short := Short{
		Kills: shortKills(r.Cases, PartKills), LeaderKills: shortKills(r.Cases, PartLeaders),
		Pauses: []ShortPause{}, TickCost: []ShortCost{}, Collateral: r.Collateral,
	}
	short.Collateral.Findings = nil
	for _, p := range r.Pauses {
		short.Pauses = append(short.Pauses, ShortPause{p.Detector, p.Seconds, p.FalsePositives, p.SessionsLost})
	}
	for _, c := range r.Costs {
		short.TickCost = append(short.TickCost, ShortCost{c.Detector, c.Sessions, c.Workers, c.Tick.P50})
	}
	return short
}

// shortKills joins the cases of a part that have one detector.
func shortKills(cases []Case, part string) []ShortKills {
	short := []ShortKills{}
	for _, detector := range Detectors() {
		var samples []Sample
		for _, c := range cases {
			if c.Part == part && c.Detector == detector {
				samples = append(samples, c.Samples...)
			}
		}
		if len(samples) == 0 {
			continue
		}
		all := newCase(part, part, detector, samples)
		short = append(short, ShortKills{
			Detector: detector, N: all.N,
			Gap:      shortRange{all.Gap.P50, all.Gap.Max},
			Confirm:  shortRange{all.Confirm.P50, all.Confirm.Max},
			Notified: shortNotified{all.Notified.P50, all.Notified.P99, all.Notified.Max},
		})
	}
	return short
}

// lengths run presence next to the detector whose speed depends on the lease.
func lengthDetectors() []string {
	return []string{string(berth.DetectPresence), string(berth.DetectLease)}
}

// articleDetectors are the two designs of the article.
func articleDetectors() []string {
	return []string{string(berth.DetectSweep), string(berth.DetectLease)}
}

// Lasting is how long a full run takes, roughly, for people.
const Lasting = 40 * time.Minute

func has(list []string, one string) bool { return slices.Contains(list, one) }
