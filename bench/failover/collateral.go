package failover

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// cleanLimit is how long after a fault everything may take to be in order, once all are back.
const cleanLimit = 5 * time.Second

// Collateral counts what should not have happened. All of it should be zero.
type Collateral struct {
	// WronglyDropped counts sockets closed, peers told of a loss, and workers declared lost that no fault was about.
	WronglyDropped int `json:"wrongly_dropped"`
	// ActedTwice counts verdicts and notices after the first.
	ActedTwice int `json:"acted_twice"`
	// LeftUncleaned counts what was not in order some seconds after all were back.
	LeftUncleaned int `json:"left_uncleaned"`
	// Findings says what each of them was, up to a number.
	Findings []string `json:"findings,omitempty"`
}

// maxFindings bounds what is explained.
const maxFindings = 50

// tally counts collateral. It is safe for concurrent use.
type tally struct {
	mu  sync.Mutex // guards sum
	sum Collateral
}

func (t *tally) dropped(n int, format string, args ...any) {
	t.count(&t.sum.WronglyDropped, n, format, args)
}

func (t *tally) twice(n int, format string, args ...any) { t.count(&t.sum.ActedTwice, n, format, args) }

func (t *tally) left(n int, format string, args ...any) {
	t.count(&t.sum.LeftUncleaned, n, format, args)
}

func (t *tally) count(of *int, n int, format string, args []any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*of += n
	if n > 0 && len(t.sum.Findings) < maxFindings {
		t.sum.Findings = append(t.sum.Findings, fmt.Sprintf(format, args...))
	}
}

// countDrops counts, before anything is repaired, what a fault should not have touched.
func (s *scene) countDrops(f *fault) {
	survivors := map[*peer]bool{}
	for _, p := range f.survivors {
		survivors[p] = true
	}
	for _, c := range s.calls {
		for _, p := range c.peers {
			if p.dropped() {
				s.tally.dropped(1, "%s of %s on %s was disconnected: %v", p.id, c.id, p.worker.id, p.reason())
			}
			if told := len(p.since("peer-disconnected", f.began)); told > 0 && !survivors[p] && !f.hits(p.worker) {
				s.tally.dropped(told, "%s of %s was told that its partner on %s is gone", p.id, c.id, c.other(p).worker.id)
			}
		}
	}
	for _, e := range s.journal.since(f.mark, lineLoss) {
		if !f.about(e) {
			s.tally.dropped(1, "%s, instance %d, was declared lost: %s", e.workerID, e.instance, e.evidence)
		}
	}
}

// audit counts, once all are back, what was done twice and what was not done.
func (s *scene) audit(ctx context.Context, f *fault) error {
	left, what := 0, ""
	var failed error
	eventually(ctx, cleanLimit, func() bool {
		left, what, failed = s.leftovers(ctx)
		return failed != nil || left == 0
	})
	if failed != nil {
		return failed
	}
	s.tally.left(left, "left: %s", what)
	verdicts := map[int64]int{}
	for _, e := range s.journal.since(f.mark, lineLoss) {
		if verdicts[e.instance]++; verdicts[e.instance] > 1 {
			s.tally.twice(1, "%s, instance %d, was declared lost again", e.workerID, e.instance)
		}
	}
	for _, p := range f.survivors {
		told := p.since("peer-disconnected", f.began)
		s.tally.twice(max(0, len(told)-1), "%s of %s on %s was told %d times: %s", p.id, p.placement.ID, p.worker.id, len(told),
			reasons(told, f.began))
		if len(told) == 0 {
			s.tally.left(1, "%s of %s was never told", p.id, p.placement.ID)
		}
	}
	return nil
}

// reasons lists, newest first, why and when a peer was told that its partner is gone.
func reasons(told []heard, began time.Time) string {
	var list []string
	for _, h := range told {
		list = append(list, fmt.Sprintf("%s after %s", h.Reason, h.at.Sub(began).Round(time.Millisecond)))
	}
	return strings.Join(list, ", ")
}

// leftovers asks the database what is not in order.
func (s *scene) leftovers(ctx context.Context) (total int, what string, err error) {
	var calls, peers, notices, gaps, violations int
	err = s.pool.QueryRow(ctx, `select
		(select count(*) from berth.sessions where tenant_id = $1 and state in ('assigned', 'awaiting_rejoin')),
		(select count(*) from berth.peers p join berth.sessions s on s.key = p.session
		  where s.kind = 'call' and s.state <> 'ended' and p.connection_id is not null and not exists (
		        select from berth.workers w where w.id = p.worker_id and w.instance = p.instance and w.state in ('ready', 'draining'))),
		(select count(*) from berth.peers where notice is not null),
		(select count(*) from berth.gaps where cleared_at is null and confirmed_at is null),
		(select count(*) from berth.violations)`, tenantCalls).Scan(&calls, &peers, &notices, &gaps, &violations)
	if err != nil {
		return 0, "", fmt.Errorf("look for leftovers: %w", err)
	}
	what = fmt.Sprintf("%d calls that are not active, %d peers on instances that are gone, %d notices, %d gaps, %d violations",
		calls, peers, notices, gaps, violations)
	return calls + peers + notices + gaps + violations, what, nil
}
