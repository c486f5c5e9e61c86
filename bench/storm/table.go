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
	return tabulate(w, "CASE\tBEFORE P50 MS\tP99\tDURING P50 MS\tP99\tRATIO\tMESSAGES\tMISSED\tINCOMPLETE\tCLOSES 1006\tMOVED\tOTHERS LOST\t", func(w io.Writer) {
		for _, c := range r.Cases {
			b, d := c.RoundTrip.Before, c.RoundTrip.During
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Name, b.P50, b.P99, d.P50, d.P99,
				c.RoundTrip.Ratio, c.Messages, c.Missed, c.Partial, c.Codes["1006"], c.Moved, c.OthersLost)
		}
	})
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
		for _, fault := range c.Faults() {
			say("  NOT GOOD: %s\n", fault)
		}
	}
	return errors.Join(errs...)
}

// counts lists what was counted, in order.
func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", name, of[name]))
	}
	return strings.Join(parts, ", ")
}
