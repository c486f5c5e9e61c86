package storm

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	err := r.Machine.write(w)
	return errors.Join(err, r.writeStorms(w), r.writeTrips(w), r.writeDetails(w))
}

func (m Machine) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `machine     %d cores, %s, %s %s
versions    berth %s, %s, Postgres %s
fleet       %d workers, %d API processes
`, m.Cores, m.CPU, m.OS, m.Kernel, m.Berth, m.Go, m.Postgres, m.Workers, m.APIs)
	return err
}

// tabulate writes a table with a heading.
func tabulate(w io.Writer, heading string, rows func(io.Writer)) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\n%s\n", heading)
	rows(table)
	return table.Flush()
}

func (r *Report) writeStorms(w io.Writer) error {
	return tabulate(w, "CASE\tCLIENTS\tLOST\tBACK\tALL BACK S\tMODEL S\tRATIO\tAWAY P50 S\tP99\tPEAK HANDSHAKES/S\tREQUESTS/S\tREFUSALS\tAUTH FAILED\tMORE DEATHS\t", func(w io.Writer) {
		for _, c := range r.Cases {
			model, ratio := "-", "-"
			if c.Model != nil {
				model, ratio = fmt.Sprintf("%.1f", c.Model.ClearsS), fmt.Sprintf("%.2f", c.Ratio)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\t%s\t%s\t%.1f\t%.1f\t%.0f\t%.0f\t%d\t%d\t%d\t\n", c.Name, c.Clients, c.Lost, c.Back,
				c.ClearedS, model, ratio, c.Away.P50, c.Away.P99, c.Peak, c.Asked, c.refusals(), c.FailedAuth, c.SecondDeaths)
		}
	})
}

func (r *Report) writeTrips(w io.Writer) error {
	err := tabulate(w, "CASE\tPUBLISH TO HEARD BEFORE P50 MS\tP99\tDURING P50 MS\tP99\tRATIO\tFRAME TO ANSWER BEFORE P50 MS\tP99\tDURING P50 MS\tP99\tRATIO\t", func(w io.Writer) {
		for _, c := range r.Cases {
			fmt.Fprintf(w, "%s\t%s%s\n", c.Name, c.RoundTrip.cells(), c.Answer.cells())
		}
	})
	return errors.Join(err, tabulate(w, "CASE\tMESSAGES\tMISSED\tINCOMPLETE\tNOT PUBLISHED\tCLOSES 1006\tMOVED\tOTHERS LOST\t", func(w io.Writer) {
		for _, c := range r.Cases {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Name, c.Messages, c.Missed, c.Partial, c.Failed,
				c.Codes["1006"], c.Moved, c.OthersLost)
		}
	}))
}

func (r RoundTrip) cells() string {
	return fmt.Sprintf("%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t", r.Before.P50, r.Before.P99, r.During.P50, r.During.P99, r.Ratio)
}

func (r *Report) writeDetails(w io.Writer) error {
	var errs []error
	say := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	for _, c := range r.Cases {
		say("\n%s: lost by %s; back by %s; %.1f requests each (p99 %.0f); came at %.0f/s at first; clients take %.0f MiB\n", c.Name,
			counts(c.Codes), counts(c.Ways), c.Attempts.P50, c.Attempts.P99, c.Filled, c.ClientMiB)
		if len(c.Refusals) > 0 {
			say("  refusals and failures: %s\n", counts(c.Refusals))
		}
		if c.Model != nil {
			say("  model: %d lost / %.0f s = %.0f per second, of %.0f that the survivors take: %.1f s\n", c.Model.Lost, c.Model.WindowS,
				c.Model.Arrivals, c.Model.Capacity, c.Model.ClearsS)
		}
		if c.CPU != nil {
			say("  CPU for each that came back: workers %.1f ms, APIs %.1f, Postgres %.1f, clients %.1f; %.1f of all cores' time\n",
				c.each(c.CPU.Workers), c.each(c.CPU.APIs), c.each(c.CPU.Postgres), c.each(c.CPU.Clients), c.busy(r.Machine.Cores))
		}
		for _, broken := range c.Broken {
			say("  1006 %s\n", broken)
		}
		for _, fault := range c.Faults() {
			say("  NOT GOOD: %s\n", fault)
		}
	}
	return errors.Join(errs...)
}

// each is seconds over all as milliseconds of one client that came back.
func (c Case) each(seconds float64) float64 { return 1000 * seconds / float64(max(1, c.Back)) }

// busy is which part of the time of all cores the storm took, until all were back.
func (c Case) busy(cores int) float64 {
	if c.ClearedS == 0 {
		return 0
	}
	return (c.CPU.Workers + c.CPU.APIs + c.CPU.Postgres + c.CPU.Clients) / c.ClearedS / float64(max(1, cores))
}

// counts lists what was counted, in order.
func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", name, of[name]))
	}
	return strings.Join(parts, ", ")
}
