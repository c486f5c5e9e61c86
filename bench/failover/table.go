package failover

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	err := r.Machine.write(w)
	for _, write := range []func(io.Writer) error{
		r.writeCases, r.writeClaims, r.writePauses, r.writeCosts, r.writeLengths, r.writeArticle, r.writeCollateral,
	} {
		err = errors.Join(err, write(w))
	}
	return err
}

// tabulate writes a table with a heading.
func tabulate(w io.Writer, heading string, rows func(io.Writer)) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\n%s\n", heading)
	rows(table)
	return table.Flush()
}

const caseHeading = "KILLED\tDETECTOR\tN\tSURVIVORS\tGAP P50 MS\tMAX\tCONFIRM P50 MS\tMAX\tNOTIFIED P50 MS\tP99\tMAX\tMISSED\t"

func writeCase(w io.Writer, c Case) {
	fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t\n", c.Name, c.Detector, c.N,
		c.Notified.N+c.Missed, c.Gap.P50, c.Gap.Max, c.Confirm.P50, c.Confirm.Max, c.Notified.P50, c.Notified.P99,
		c.Notified.Max, c.Missed)
}

func (r *Report) writeCases(w io.Writer) error {
	if len(r.Cases) == 0 {
		return nil
	}
	return tabulate(w, caseHeading, func(w io.Writer) {
		for _, c := range r.Cases {
			writeCase(w, c)
		}
	})
}

func (r *Report) writeClaims(w io.Writer) error {
	for _, c := range r.Cases {
		if c.Claims == nil {
			continue
		}
		if _, err := fmt.Fprintf(w, "\nanother tenant's starts meanwhile (%s, %s): %d, %d failed, p50 %.1f ms, p99 %.1f ms, max %.1f ms; p99 before %.1f ms\n",
			c.Name, c.Detector, c.Claims.N, c.Claims.Failed, c.Claims.P50, c.Claims.P99, c.Claims.Max, c.Claims.Before); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) writePauses(w io.Writer) error { return writePauses(w, r.Pauses) }

func writePauses(w io.Writer, pauses []Pause) error {
	if len(pauses) == 0 {
		return nil
	}
	return tabulate(w, "PAUSE S\tDETECTOR\tFALSE POSITIVES\tSESSIONS\tLOST\tROWS LEFT\tCLOSED\tSILENT\t", func(w io.Writer) {
		for _, p := range pauses {
			fmt.Fprintf(w, "%g\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", p.Seconds, p.Detector, p.FalsePositives, p.Sessions,
				p.SessionsLost, p.RowsLeft, p.Closed, p.Silent)
		}
	})
}

func (r *Report) writeCosts(w io.Writer) error { return writeCosts(w, r.Costs) }

func writeCosts(w io.Writer, costs []Cost) error {
	if len(costs) == 0 {
		return nil
	}
	return tabulate(w, "SESSIONS\tWORKERS\tDETECTOR\tTICK P50 MS\tMAX\tLOOK P50 MS\tMAX\tTICKS\t", func(w io.Writer) {
		for _, c := range costs {
			sessions := fmt.Sprint(c.Sessions)
			if c.Rows {
				sessions += " (rows)"
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t\n", sessions, c.Workers, c.Detector, c.Tick.P50, c.Tick.Max,
				c.Look.P50, c.Look.Max, c.Ticks)
		}
	})
}

func (r *Report) writeLengths(w io.Writer) error {
	if len(r.Lengths) == 0 {
		return nil
	}
	return tabulate(w, "LEASE S\tDETECTOR\tN\tNOTIFIED P50 MS\tMAX\t", func(w io.Writer) {
		for _, l := range r.Lengths {
			fmt.Fprintf(w, "%g\t%s\t%d\t%.0f\t%.0f\t\n", l.Lease, l.Detector, l.N, l.Notified.P50, l.Notified.Max)
		}
	})
}

// writeArticle puts what the article says, what its numbers give here, and what the defaults give here side by side.
func (r *Report) writeArticle(w io.Writer) error {
	if r.Article == nil {
		return nil
	}
	err := tabulate(w, "SECONDS\tDETECTOR\tFIRST GAP\tCONFIRM\tNOTIFIED\t", func(w io.Writer) {
		said := articleSaid()
		for _, detector := range articleDetectors() {
			gap, confirm := said[detector][0], said[detector][1]
			fmt.Fprintf(w, "article\t%s\t%.1f\t%.1f\t%.1f\t\n", detector, gap, confirm, gap+confirm)
		}
		for _, c := range r.Article.Cases {
			writeSeconds(w, "its numbers here", c)
		}
		for _, c := range r.Cases {
			if c.Part == PartKills {
				writeSeconds(w, "our defaults", c)
			}
		}
	})
	return errors.Join(err, writePauses(w, r.Article.Pauses), writeCosts(w, r.Article.Costs))
}

// writeSeconds writes means, as the article does.
func writeSeconds(w io.Writer, whose string, c Case) {
	mean := func(of func(Sample) []float64) float64 { return meanOf(gather(c.Samples, of)) / 1000 }
	fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.2f\t\n", whose, c.Detector, mean(func(s Sample) []float64 { return s.Gap }),
		mean(func(s Sample) []float64 { return s.Confirm }), mean(func(s Sample) []float64 { return s.Notified }))
}

func meanOf(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func (r *Report) writeCollateral(w io.Writer) error {
	_, err := fmt.Fprintf(w, "\ncollateral  %d wrongly dropped, %d acted twice, %d left uncleaned\n",
		r.Collateral.WronglyDropped, r.Collateral.ActedTwice, r.Collateral.LeftUncleaned)
	for _, finding := range r.Collateral.Findings {
		_, failed := fmt.Fprintf(w, "  %s\n", finding)
		err = errors.Join(err, failed)
	}
	return err
}
