package connections

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/bench/load"
)

// Report is the result of a run. As it is, with every round, it is what is kept.
type Report struct {
	Machine     lab.Host      `json:"machine"`
	Connections int           `json:"n"`
	PingSeconds float64       `json:"ping_seconds"`
	Topics      int           `json:"topics_of_many"`
	Rounds      int           `json:"rounds"`
	Kernel      string        `json:"kernel_memory_by"`
	Medians     []Measurement `json:"medians"`
	// RSSRatio is Berth's with one subscription to the library's; zero: that was not measured. None is Berth's without one.
	RSSRatio     float64       `json:"rss_ratio,omitempty"`
	NoneRSSRatio float64       `json:"rss_ratio_without_subscription,omitempty"`
	LeanRSSRatio float64       `json:"rss_ratio_to_lean,omitempty"`
	All          []Measurement `json:"all"`

	subjects []string
}

func newReport(cfg Config, host lab.Host) *Report {
	_, how := lab.SocketMemory()
	return &Report{
		Machine: host, Kernel: how, Connections: cfg.N, PingSeconds: cfg.Ping.Seconds(), Topics: cfg.Topics, Rounds: cfg.Rounds,
		subjects: cfg.Subjects,
	}
}

func (r *Report) add(m Measurement) {
	r.All = append(r.All, m)
	r.Medians = nil
	for _, name := range r.subjects {
		if median, measured := r.median(name); measured {
			r.Medians = append(r.Medians, median)
		}
	}
	r.RSSRatio, r.NoneRSSRatio, r.LeanRSSRatio = r.ratio(Berth, Centrifuge), r.ratio(BerthIdle, Centrifuge), r.ratio(Berth, CentrifugeLean)
}

func (r *Report) median(name string) (m Measurement, measured bool) {
	over := func(number func(Measurement) float64) float64 {
		var values []float64
		for _, m := range r.All {
			if m.Subject == name {
				values = append(values, number(m))
			}
		}
		measured = len(values) > 0
		return load.Median(values)
	}
	m = Measurement{
		Subject:    name,
		RSS:        over(func(m Measurement) float64 { return m.RSS }),
		Heap:       over(func(m Measurement) float64 { return m.Heap }),
		Stack:      over(func(m Measurement) float64 { return m.Stack }),
		Kernel:     over(func(m Measurement) float64 { return m.Kernel }),
		IdleRSS:    over(func(m Measurement) float64 { return m.IdleRSS }),
		Goroutines: over(func(m Measurement) float64 { return m.Goroutines }),
		Opening:    over(func(m Measurement) float64 { return m.Opening }),
	}
	return m, measured
}

// ratio of two subjects' resident memory; zero if one was not measured.
func (r *Report) ratio(one, other string) float64 {
	a, measured := r.median(one)
	b, too := r.median(other)
	if !measured || !too || b.RSS <= 0 {
		return 0
	}
	return a.RSS / b.RSS
}

// Short is the medians by subject.
type Short struct {
	Connections map[string]ShortMeasurement `json:"connections"`
}

// ShortMeasurement is in KiB for each connection.
type ShortMeasurement struct {
	RSS    float64 `json:"rss_kib"`
	Heap   float64 `json:"heap_kib"`
	Stack  float64 `json:"stack_kib"`
	Kernel float64 `json:"kernel_kib"`
}

// Short leaves out rounds and machine: the form of --json.
func (r *Report) Short() any {
	short := Short{Connections: map[string]ShortMeasurement{}}
	for _, m := range r.Medians {
		short.Connections[m.Subject] = ShortMeasurement{m.RSS, m.Heap, m.Stack, m.Kernel}
	}
	return short
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "machine     %d cores, %s, %s %s\n", r.Machine.Cores, r.Machine.CPU, r.Machine.OS, r.Machine.Kernel)
	fmt.Fprintf(table, "versions    berth %s, %s, Postgres %s\n", r.Machine.Berth, r.Machine.Go, r.Machine.Postgres)
	fmt.Fprintf(table, "load        %d connections to one process, a ping each %g s, medians of %d rounds; kernel memory by %s\n\n", r.Connections, r.PingSeconds, r.Rounds, r.Kernel)
	fmt.Fprint(table, "KIB PER CONNECTION\tRSS\tHEAP\tSTACK\tKERNEL\tGOROUTINES\tIDLE PROCESS MIB\tOPENING S\t\n")
	for _, m := range r.Medians {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.0f\t%.1f\t\n", m.Subject, m.RSS, m.Heap, m.Stack, m.Kernel, m.Goroutines, m.IdleRSS, m.Opening)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return r.writeRatios(w)
}

func (r *Report) writeRatios(w io.Writer) error {
	if r.RSSRatio == 0 {
		_, err := fmt.Fprintln(w, "\ncentrifuge was not measured beside Berth with one subscription: see --centrifuge and --only")
		return err
	}
	_, err := fmt.Fprintf(w, "\nrss, Berth to centrifuge, one subscription each: %.2f; Berth without a subscription: %.2f; to centrifuge_lean: %.2f\n",
		r.RSSRatio, r.NoneRSSRatio, r.LeanRSSRatio)
	return err
}
