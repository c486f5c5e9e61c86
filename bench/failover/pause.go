package failover

import (
	"context"
	"fmt"
	"time"
)

const (
	// wakeLimit is how soon after a pause what peers say must come through.
	wakeLimit = 2 * time.Second
	// pauseTicks is how many ticks a verdict may come later than the pause.
	pauseTicks = 3
	// defaultTick is the period of the reaper unless a scene says another.
	defaultTick = time.Second
)

// Pause is what came of stopping a worker for a while.
type Pause struct {
	Detector       string  `json:"detector"`
	Seconds        float64 `json:"pause_s"`
	FalsePositives int     `json:"false_positives"`
	SessionsLost   int     `json:"sessions_lost"`
	// Sessions is how many were on the worker.
	Sessions int `json:"sessions"`
	// The reasons for which they count as lost; one may have several.
	RowsLeft int `json:"rows_left_live_states"`
	Closed   int `json:"sockets_closed"`
	Silent   int `json:"not_relayed"`
}

// pauses stops one worker after the other.
func (s *scene) pauses(ctx context.Context, lengths []time.Duration, what string) ([]Pause, error) {
	var out []Pause
	for _, d := range lengths {
		p, err := s.pause(ctx, s.victims(1)[0], d)
		if err != nil {
			return out, fmt.Errorf("pause of %s: %w", d, err)
		}
		out = append(out, p)
		s.rig.step(what)
	}
	return out, nil
}

func (s *scene) pause(ctx context.Context, m *member, d time.Duration) (Pause, error) {
	out := Pause{Detector: s.tuning.detector, Seconds: d.Seconds()}
	var stopped []*call
	for _, c := range s.calls {
		if c.peers[0].worker == m || c.peers[1].worker == m {
			stopped = append(stopped, c)
		}
	}
	out.Sessions = len(stopped)
	mark := s.journal.mark()
	m.stop()
	err := rest(ctx, d)
	m.resume()
	if err != nil {
		return out, err
	}
	silent := s.speak(ctx, s.calls)
	if err := rest(ctx, pauseTicks*max(s.tuning.tick, defaultTick)); err != nil {
		return out, err
	}
	out.FalsePositives = len(s.journal.since(mark, lineLoss))
	lost, err := s.lost(ctx, stopped, silent, &out)
	if err != nil {
		return out, err
	}
	harmed, err := s.unconcerned(ctx, stopped, silent)
	if err != nil {
		return out, err
	}
	return out, s.mend(ctx, append(lost, harmed...))
}

// speak has every peer say something to its partner, and returns the calls in which it did not arrive in time.
func (s *scene) speak(ctx context.Context, calls []*call) map[*call]bool {
	began := time.Now()
	for _, c := range calls {
		for _, p := range c.peers {
			_ = p.say(ctx, frame{Type: "candidate", Candidate: &frameCandidate{"candidate of " + p.id}}) // what is not heard tells
		}
	}
	arrived := func(c *call) bool { return c.peers[0].has("candidate", began) && c.peers[1].has("candidate", began) }
	silent := map[*call]bool{}
	eventually(ctx, wakeLimit, func() bool {
		clear(silent)
		for _, c := range calls {
			if !arrived(c) {
				silent[c] = true
			}
		}
		return len(silent) == 0
	})
	return silent
}

// lost finds the calls that the pause cost, and counts why.
func (s *scene) lost(ctx context.Context, calls []*call, silent map[*call]bool, out *Pause) ([]*call, error) {
	var lost []*call
	for _, c := range calls {
		live, err := s.live(ctx, c)
		if err != nil {
			return nil, err
		}
		closed := c.peers[0].gone() || c.peers[1].gone()
		if live && !closed && !silent[c] {
			continue
		}
		lost = append(lost, c)
		out.RowsLeft += one(!live)
		out.Closed += one(closed)
		out.Silent += one(silent[c])
	}
	out.SessionsLost = len(lost)
	return lost, nil
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unconcerned counts what happened to calls that have no peer on the worker, and returns those that were harmed.
func (s *scene) unconcerned(ctx context.Context, stopped []*call, silent map[*call]bool) ([]*call, error) {
	concerned := map[*call]bool{}
	for _, c := range stopped {
		concerned[c] = true
	}
	var others []*call
	for _, c := range s.calls {
		if !concerned[c] {
			others = append(others, c)
		}
	}
	var why Pause
	harmed, err := s.lost(ctx, others, silent, &why)
	s.tally.dropped(len(harmed), "calls on other workers than the stopped one were harmed: %+v", why)
	return harmed, err
}

// live says whether a call's row is in a live state.
func (s *scene) live(ctx context.Context, c *call) (live bool, err error) {
	err = s.pool.QueryRow(ctx, `select exists (select from berth.sessions
		where tenant_id = $1 and id = $2 and state in ('assigned', 'active'))`, tenantCalls, c.id).Scan(&live)
	return live, err
}

// mend waits until every worker serves again, perhaps as a new instance, and makes other calls for those that were lost.
func (s *scene) mend(ctx context.Context, lost []*call) error {
	for _, m := range s.workers {
		err := m.await(ctx, func(ctx context.Context) bool {
			instance, err := s.serving(ctx, m.id)
			if err != nil || instance == 0 {
				return false
			}
			m.instance = instance
			return true
		})
		if err != nil {
			return err
		}
	}
	return s.replace(ctx, lost)
}
