package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// shownCandidates is how many workers that fit, and as many that do not, are printed; JSON has all.
const shownCandidates = 10

func whyCommand() *cobra.Command {
	var tenant, output string
	command := &cobra.Command{
		Use:   "why SESSION --tenant TENANT",
		Short: "Explain where a session is: its owners so far, why each was lost, and who could have it now",
		Long: "Explain where a session is, or why it is nowhere, from the database: what it asks for, its place in the queue, its owners\n" +
			"so far with the evidence for each loss, the workers that could have it now, and what its tenant was refused lately.\n" +
			"It only reads, so the role berth_viewer may run it. For a session that does not exist it says what a start would find,\n" +
			"and fails.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !berth.ValidID(args[0]):
				return usageError{errors.New("session id is not valid: " + idHelp)}
			case !berth.ValidID(tenant):
				return usageError{errors.New("--tenant must name the session's tenant: " + idHelp)}
			}
			return withStore(cmd, func(ctx context.Context, store *postgres.Store) error {
				explanation, err := store.Explain(ctx, tenant, args[0])
				if err != nil {
					return err
				}
				if err := printExplanation(cmd.OutOrStdout(), explanation, output); err != nil {
					return err
				}
				if explanation.Session == nil && explanation.Queue == nil {
					return fmt.Errorf("tenant %s has no session %s: none of this id is live, waits, or ended within the last day", tenant, args[0])
				}
				return nil
			})
		},
	}
	outputFlag(command, &output)
	command.Flags().StringVar(&tenant, "tenant", "", "whose session it is")
	return command
}

func printExplanation(w io.Writer, explanation berth.Explanation, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(explanation)
	}
	return report{explanation, w}.print()
}

// report is an explanation as text.
type report struct {
	berth.Explanation

	w io.Writer
}

func (r report) print() error {
	parts := []func() error{r.printSession, r.printQueue, r.printSearch, r.printOwners, r.printCandidates, r.printRefusals}
	for i, part := range parts {
		if err := part(); err != nil {
			return fmt.Errorf("print part %d: %w", i+1, err)
		}
	}
	return nil
}

func (r report) printSession() error {
	return r.line("%s", r.whereabouts())
}

// whereabouts is the answer in one sentence.
func (r report) whereabouts() string {
	s := r.Session
	name := fmt.Sprintf("Session %s of %s", r.SessionID, r.TenantID)
	switch {
	case s == nil && r.Queue != nil:
		return name + " does not exist yet: its start waits for capacity."
	case s == nil:
		return name + " does not exist: none of this id is live or ended within the last day. Below is what a start of it would find."
	case s.State == berth.SessionEnded:
		return fmt.Sprintf("%s ended at %s: %s. Generation %d was its last.", name, moment(s.EndedAt), s.EndedReason, s.Generation)
	case s.State == berth.SessionAwaitingRejoin && s.LastWorkerID == "": // a call: its peers have workers
		return fmt.Sprintf("%s is a call that lost a peer or both (generation %d), and awaits a rejoin until %s (%s).",
			name, s.Generation, moment(s.RejoinBy), r.away(s.RejoinBy))
	case s.State == berth.SessionAwaitingRejoin:
		return fmt.Sprintf("%s has no owner: it lost %s (generation %d) and awaits a rejoin until %s (%s).",
			name, s.LastWorkerID, s.Generation, moment(s.RejoinBy), r.away(s.RejoinBy))
	case s.State == berth.SessionAssigned:
		return fmt.Sprintf("%s is assigned to %s in %s, generation %d. Nobody has connected; it ends at %s (%s) unless somebody does.",
			name, s.WorkerID, s.Region, s.Generation, moment(s.ConnectBy), r.away(s.ConnectBy))
	default:
		return fmt.Sprintf("%s is active on %s in %s, generation %d. It ends at %s (%s) at the latest.",
			name, s.WorkerID, s.Region, s.Generation, moment(s.ExpiresAt), r.away(s.ExpiresAt))
	}
}

func (r report) printQueue() error {
	q := r.Queue
	if q == nil {
		return nil
	}
	text := fmt.Sprintf("It is number %d of %d that wait, since %s; refused at %s (%s) if nothing opens before.",
		q.Turn, q.Waiters, moment(q.Since), moment(q.Deadline), r.away(q.Deadline))
	if !q.OwnerPresent {
		text += " The API process that asked is gone, so it is passed over."
	}
	if !q.ReservedUntil.IsZero() {
		text += " Until " + moment(q.ReservedUntil) + " what it could use is kept free for it."
	}
	return r.line("%s", text)
}

func (r report) printSearch() error {
	regions := "any region"
	if len(r.Search.Regions) > 0 {
		regions = strings.Join(r.Search.Regions, ", then ")
	}
	text := fmt.Sprintf("It asks for %s in %s, strategy %s", count(r.Search.Slots, "slot"), regions, r.Search.Strategy)
	if len(r.Search.Selector) > 0 {
		text += ", labels " + joinLabels(r.Search.Selector)
	}
	if s := r.Session; s != nil && s.RequestedRegion != "" && s.Region != "" && s.Region != s.RequestedRegion {
		text += "; it spilled to " + s.Region
	}
	return r.line("%s.", text)
}

func (r report) printOwners() error {
	if r.Session == nil {
		return nil
	}
	rows := make([][]string, 0, len(r.Owners))
	for _, o := range r.Owners {
		until := "now"
		if !o.Until.IsZero() {
			until = moment(o.Until)
		}
		rows = append(rows, []string{
			strconv.FormatInt(int64(o.Generation), 10), o.WorkerID, strconv.Itoa(int(o.Instance)), o.Region, twoPlaces(o.Rank), moment(o.From), until, because(o),
		})
	}
	return r.table("Owners so far", []string{"GENERATION", "WORKER", "INSTANCE", "REGION", "RANK", "FROM", "UNTIL", "BECAUSE"}, rows)
}

// because says what ended an ownership, with the evidence.
func because(o berth.Ownership) string {
	text := cmp.Or(o.Cause, "-")
	if o.Ended {
		text = "ended: " + o.Cause
	}
	switch {
	case o.Gap == nil:
	case o.Gap.ConfirmedAt.IsZero():
		text = "missing since " + moment(o.Gap.OpenedAt) + ", not confirmed: " + o.Gap.Evidence
	default:
		text += "; missing at " + moment(o.Gap.OpenedAt) + ", confirmed at " + moment(o.Gap.ConfirmedAt) + ": " + o.Gap.Evidence
	}
	return text
}

func (r report) printCandidates() error {
	rows, fit, unfit := [][]string{}, 0, 0
	for _, c := range r.Candidates {
		order := "-"
		if c.Fits {
			fit++
			order = strconv.Itoa(fit)
		} else {
			unfit++
		}
		if c.Fits && fit > shownCandidates || !c.Fits && unfit > shownCandidates {
			continue
		}
		rank := "-"
		if c.Rank != nil {
			rank = twoPlaces(*c.Rank)
		}
		rows = append(rows, []string{
			order, c.WorkerID, c.Region, string(c.State), fmt.Sprintf("%d/%d", c.Used, c.Capacity), strconv.Itoa(c.Free), rank, remarks(c),
		})
	}
	title := fmt.Sprintf("Candidates now, the first choice first: %s, %d not", count(fit, "worker")+" could take it", unfit)
	if err := r.table(title, []string{"CHOICE", "WORKER", "REGION", "STATE", "USED", "FREE", "RANK", "REMARKS"}, rows); err != nil {
		return err
	}
	if hidden := len(r.Candidates) - len(rows); hidden > 0 {
		return r.line("and %d more; --output json has all.", hidden)
	}
	return nil
}

// remarks says why a worker does not fit, or comes when it comes.
func remarks(c berth.Candidate) string {
	var words []string
	if c.Owner {
		words = append(words, "the owner")
	}
	if c.Reason != "" {
		words = append(words, c.Reason)
	}
	if c.Avoided && c.Fits {
		words = append(words, "had it last, so a rejoin tries all others first")
	}
	if c.SuspectReason != "" {
		words = append(words, "last choice: "+c.SuspectReason)
	}
	if c.SlowStart {
		words = append(words, "starts slowly")
	}
	return cmp.Or(strings.Join(words, "; "), "-")
}

func (r report) printRefusals() error {
	rows := make([][]string, 0, len(r.Refusals))
	for _, f := range r.Refusals {
		rows = append(rows, []string{moment(f.Minute), cmp.Or(f.Region, "any"), string(f.Code), strconv.FormatInt(f.Refusals, 10)})
	}
	return r.table("Refused to "+r.TenantID+" within the last 15 minutes", []string{"MINUTE", "REGION", "CODE", "STARTS"}, rows)
}

func (r report) line(format string, args ...any) error {
	_, err := fmt.Fprintf(r.w, format+"\n", args...)
	return err
}

// table prints a title and rows, or that there are none.
func (r report) table(title string, header []string, rows [][]string) error {
	if len(rows) == 0 {
		return r.line("\n%s: none", title)
	}
	if err := r.line("\n%s", title); err != nil {
		return err
	}
	table := tabwriter.NewWriter(r.w, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		if _, err := fmt.Fprintln(table, "  "+strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

// away says how far a moment is from the explanation's.
func (r report) away(t time.Time) string {
	distance := t.Sub(r.At).Round(time.Second)
	if distance < 0 {
		return (-distance).String() + " ago"
	}
	return "in " + distance.String()
}

// moment writes a time as the database's log would, in UTC.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func twoPlaces(rank float64) string { return strconv.FormatFloat(rank, 'f', 2, 64) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
