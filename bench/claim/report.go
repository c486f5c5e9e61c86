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
	// Ratios are medians of berth's throughput divided by those of others.
	Ratios map[string]float64 `json:"ratios"`

	order []string
}

// Subject is the numbers of one subject.
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

// Figures are the short form of the report. What is measured for comparison only is not in it.
func (r *Report) Figures() map[string]Figure {
	figures := map[string]Figure{}
	for name, s := range r.Subjects {
		if name != front.RedisLuaLiteral {
			figures[name] = Figure{s.Median.RPS, s.Median.P50, s.Median.P99}
		}
	}
	return figures
}

func (r *Report) summarize() {
	for _, s := range r.Subjects {
		s.Median = medians(s.Rounds)
	}
	r.Ratios = map[string]float64{}
	own, measured := r.Subjects[Berth]
	if !measured {
		return
	}
	for name, s := range r.Subjects {
		if name != Berth && name != Lifecycle && name != front.HTTPNull && s.Median.RPS > 0 {
			r.Ratios[Berth+"/"+name] = own.Median.RPS / s.Median.RPS
		}
	}
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	if err := r.Machine.write(w); err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\nSUBJECT\tREQUESTS/S\tP50 MS\tP99 MS\tCPU µS: SERVER\tSTORE\tLOAD\tBERTH IS\t")
	for _, name := range r.order {
		m := r.Subjects[name].Median
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.2f\t%.0f\t%.0f\t%.0f\t%s\t\n",
			name, m.RPS, m.P50, m.P99, m.CPU.Server, m.CPU.Store, m.CPU.Load, r.ratio(name))
	}
	return table.Flush()
}

func (r *Report) ratio(name string) string {
	ratio, compared := r.Ratios[Berth+"/"+name]
	if !compared {
		return "-"
	}
	return fmt.Sprintf("%.2fx", ratio)
}
