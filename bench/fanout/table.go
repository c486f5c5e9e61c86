package fanout

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	s := r.Settings
	_, err := fmt.Fprintf(w, `machine     %d cores, %s, %s %s
versions    berth %s, %s, Postgres %s
load        %d processes; large: 1 topic, %d members, %g messages/s; pairs: %d topics, 2 members, %g messages/s each
            %d bytes a message, medians of %d rounds of %g s after %g s; centrifuge keeps %d messages of a channel
`,
		r.Machine.Cores, r.Machine.CPU, r.Machine.OS, r.Machine.Kernel, r.Machine.Berth, r.Machine.Go, r.Machine.Postgres,
		s.Processes, s.Members, s.Rate, s.Pairs, s.PairRate, s.Size, r.Rounds, s.Window, s.Warmup, s.History)
	return errors.Join(err, r.writeWork(w), r.writeBackplane(w), r.writeRatios(w))
}

func (r *Report) writeWork(w io.Writer) error {
	return tabulate(w, "LOAD\tSYSTEM\tWRITES/S\tCPU US/WRITE\tWITH STORE\tABOVE QUIET\tP50 MS\tP99 MS\tMAX MS\tANSWER P50\tP99\tLOST\tMISSING\tSERVERS CPU\tSTORE CPU\tCLIENTS CPU\tQUIET\t",
		func(w io.Writer) {
			for _, m := range r.Medians {
				fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t%d\t%d\t%.0f%%\t%.0f%%\t%.0f%%\t%.0f+%.0f%%\t\n", m.Load, m.System, m.Writes,
					m.CPU, m.CPUWithStore, m.AboveQuiet, m.P50, m.P99, m.Max, m.AnswerP50, m.AnswerP99, m.Lost, m.Missing, m.ServersPercent, m.StorePercent, m.ClientsPercent,
					m.QuietPercent, m.QuietStore)
			}
		})
}

func (r *Report) writeBackplane(w io.Writer) error {
	n := float64(max(1, r.Settings.Processes))
	return tabulate(w, "LOAD\tSYSTEM\tPUBLISHED/S\tPROCESSES/TOPIC\tRECEIVED/S/PROCESS\tDELIVERED\tRATIO\tBROADCAST\tRATIO\tSTORE WAKE-UPS/S\tLISTENERS'\t",
		func(w io.Writer) {
			for _, m := range r.Medians {
				fmt.Fprintf(w, "%s\t%s\t%.0f\t%.2f\t%.1f\t%.1f\t%.2f\t%.1f\t%.2f\t%.0f\t%.0f\t\n", m.Load, m.System, m.Published, m.ProcessesPerTopic,
					m.Received/n, m.Delivered/n, m.Ratio, m.Broadcast/n, m.BroadcastRatio, m.StoreWakes, m.ListenerWakes)
			}
		})
}

func (r *Report) writeRatios(w io.Writer) error {
	if len(r.Ratios) == 0 {
		_, err := fmt.Fprintln(w, "\ncentrifuge was not measured: see --centrifuge")
		return err
	}
	return tabulate(w, "BERTH TO CENTRIFUGE\tCPU/WRITE\tWITH STORE\tP50\tP99\t", func(w io.Writer) {
		for _, name := range Loads() {
			if ratio, measured := r.Ratios[name]; measured {
				fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t\n", name, ratio.CPU, ratio.CPUWithStore, ratio.P50, ratio.P99)
			}
		}
	})
}

// tabulate writes a table with a heading.
func tabulate(w io.Writer, heading string, rows func(io.Writer)) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\n%s\n", heading)
	rows(table)
	return table.Flush()
}
