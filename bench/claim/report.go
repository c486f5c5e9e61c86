package claim

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/berthdev/berth/bench/front"
)

// Report is what Compare found, as it is kept: medians, every round, and where it was.
type Report struct {
	Machine  Machine             `json:"machine"`
	Subjects map[string]*Subject `json:"subjects"`
	// Ratios are medians of Berth's throughput divided by those of others.
	Ratios map[string]float64 `json:"ratios"`

	order []string
}

// Subject is the numbers of one subject. A median is over the rounds, for each number alone.
type Subject struct {
	Median measurement   `json:"median"`
	Rounds []measurement `json:"rounds"`
}

// Figure is the short form of a subject's medians.
type Figure struct {
	RPS float64 `json:"rps"`
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

func (s *Subject) figure() Figure { return Figure{s.Median.RPS, s.Median.P50, s.Median.P99} }

// Short is a Figure for each subject. What is measured for comparison only is not in it.
func (r *Report) Short() any {
	figures := map[string]Figure{}
	for name, s := range r.Subjects {
		if name != front.RedisLuaLiteral {
			figures[name] = s.figure()
		}
	}
	return figures
}

func (r *Report) compare() {
	r.Ratios = map[string]float64{}
	own, measured := r.Subjects[Berth]
	if !measured {
		return
	}
	for name, s := range r.Subjects {
		if name != Berth && name != Lifecycle && name != front.HTTPNull && s.Median.RPS > 0 {
			r.Ratios[ratioName(name)] = own.Median.RPS / s.Median.RPS
		}
	}
}

func ratioName(other string) string { return Berth + "/" + other }

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	return writeTable(w, r.Machine, r.order, r.Subjects, "BERTH IS", func(name string) string {
		ratio, compared := r.Ratios[ratioName(name)]
		if !compared {
			return "-"
		}
		return fmt.Sprintf("%.2fx", ratio)
	})
}

// writeTable writes medians, with a last column of the report's own.
func writeTable(
	w io.Writer, machine Machine, order []string, subjects map[string]*Subject, last string, value func(name string) string,
) error {
	if err := machine.write(w); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nSUBJECT\tREQUESTS/S\tP50 MS\tP99 MS\tCPU µS: SERVER\tSTORE\tLOAD\t%s\t\n", last)
	for _, name := range order {
		m := subjects[name].Median
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%s\t\n",
			name, m.RPS, m.P50, m.P99, m.CPU.Server, m.CPU.Store, m.CPU.Load, value(name))
	}
	return table.Flush()
}
