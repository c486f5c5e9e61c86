package failover

import (
	"context"
	"fmt"
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
	Findings []string `json:"-"`
}

// maxFindings bounds what is explained.
const maxFindings = 50

func (c *Collateral) find(count *int, n int, format string, args ...any) {
	*count += n
	if n > 0 && len(c.Findings) < maxFindings {
		c.Findings = append(c.Findings, fmt.Sprintf(format, args...))
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
				s.tally.find(&s.tally.WronglyDropped, 1, "%s of %s on %s was disconnected: %v", p.id, c.id, p.worker.id, p.reason())
			}
			if told := len(p.since("peer-disconnected", f.began)); told > 0 && !survivors[p] && !f.hits(p.worker) {
				s.tally.find(&s.tally.WronglyDropped, told, "%s of %s was told that its partner on %s is gone", p.id, c.id, c.other(p).worker.id)
			}
		}
	}
	for _, e := range s.journal.since(f.mark, lineLoss) {
		if !f.about(e) {
			s.tally.find(&s.tally.WronglyDropped, 1, "%s, instance %d, was declared lost: %s", e.workerID, e.instance, e.evidence)
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
	s.tally.find(&s.tally.LeftUncleaned, left, "left: %s", what)
	verdicts := map[int64]int{}
	for _, e := range s.journal.since(f.mark, lineLoss) {
		if verdicts[e.instance]++; verdicts[e.instance] > 1 {
			s.tally.find(&s.tally.ActedTwice, 1, "%s, instance %d, was declared lost again", e.workerID, e.instance)
		}
	}
	for _, p := range f.survivors {
		told := len(p.since("peer-disconnected", f.began))
		s.tally.find(&s.tally.ActedTwice, max(0, told-1), "%s of %s was told %d times", p.id, p.placement.ID, told)
		if told == 0 {
			s.tally.find(&s.tally.LeftUncleaned, 1, "%s of %s was never told", p.id, p.placement.ID)
		}
	}
	return nil
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
