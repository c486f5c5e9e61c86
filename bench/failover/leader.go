package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// electionLimit is how long River may take to elect a leader after one was killed.
	electionLimit = 45 * time.Second
	// arrangements is how often it is tried to have the roles where a case needs them.
	arrangements = 20
	// riverTime is the form of the time in the id of a River client, which is part of its default.
	riverTime = "2006_01_02T15_04_05.000000"
)

// The roles of an API process.
const (
	roleRiver    = "river"
	roleSentinel = "sentinel"
	roleBoth     = "both"
)

// leaderCase is a fault of an API process at the moment at which a worker is killed.
type leaderCase struct {
	role    string // what the process is
	stopped bool   // rather than killed
}

func (c leaderCase) name() string {
	if c.stopped {
		return c.role + "_stopped"
	}
	return c.role + "_killed"
}

func leaderCases() []leaderCase {
	var cases []leaderCase
	for _, role := range []string{roleRiver, roleSentinel, roleBoth} {
		cases = append(cases, leaderCase{role, false}, leaderCase{role, true})
	}
	return cases
}

// leaderKill is one round of a case.
func (s *scene) leaderKill(ctx context.Context, c leaderCase) (Sample, error) {
	target, err := s.arrange(ctx, c.role)
	if err != nil {
		return Sample{}, fmt.Errorf("arrange %s: %w", c.name(), err)
	}
	return s.kill(ctx, s.victims(1), func() error {
		if c.stopped {
			target.stop()
		} else {
			target.kill()
		}
		return nil
	}, func() error {
		if c.stopped {
			target.resume()
			return target.await(ctx, target.answers)
		}
		<-target.process.done
		return s.begin(ctx, target)
	})
}

// arrange has one process in both roles, or two in one each, and returns the one in question.
func (s *scene) arrange(ctx context.Context, role string) (*member, error) {
	for range arrangements {
		river, sentinel, err := s.roles(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case (river == sentinel) != (role == roleBoth):
			err = s.shuffle(ctx, river, sentinel)
		case role == roleSentinel:
			return sentinel, nil
		default:
			return river, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the roles do not move")
}

// shuffle lets another process become the sentinel: perhaps, when one has both roles, and for certain the other one of
// two when they are apart.
func (s *scene) shuffle(ctx context.Context, river, sentinel *member) error {
	if river == sentinel {
		_, err := s.pool.Exec(ctx, "select pg_terminate_backend(l.pid)"+sentinelLock)
		return errors.Join(err, rest(ctx, 300*time.Millisecond))
	}
	sentinel.kill()
	<-sentinel.process.done
	return s.begin(ctx, sentinel)
}

// roles waits until both are taken, and says by whom.
func (s *scene) roles(ctx context.Context) (river, sentinel *member, err error) {
	eventually(ctx, electionLimit, func() bool {
		river, err = s.riverLeader(ctx)
		if err == nil {
			sentinel, err = s.sentinel(ctx)
		}
		return err != nil || river != nil && sentinel != nil
	})
	if err == nil && (river == nil || sentinel == nil) {
		err = fmt.Errorf("nobody took a role for %s: River %t, sentinel %t", electionLimit, river != nil, sentinel != nil)
	}
	return river, sentinel, err
}

// riverLeader is the process that leads River; nil: none, or one that is gone.
func (s *scene) riverLeader(ctx context.Context) (*member, error) {
	var id string
	err := s.pool.QueryRow(ctx, "select leader_id from river.river_leader where expires_at > now()").Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nobody is a valid answer
	}
	if err != nil {
		return nil, fmt.Errorf("look for River's leader: %w", err)
	}
	at, err := startOf(id)
	if err != nil {
		return nil, err
	}
	for _, m := range s.apis {
		if !at.Before(m.began) && at.Before(m.ready) {
			return m, nil
		}
	}
	return nil, nil //nolint:nilnil // as above
}

// startOf is when the River client of an id was made: host_2026_01_02T15_04_05_000000, in UTC.
func startOf(id string) (time.Time, error) {
	if len(id) > len(riverTime) {
		text := []byte(id[len(id)-len(riverTime):])
		text[strings.LastIndex(riverTime, ".")] = '.'
		if at, err := time.ParseInLocation(riverTime, string(text), time.UTC); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("the id %q of a River client does not end with the time of its start", id)
}

// sentinelLock finds the lock of the sentinel: number 2 of class "berr".
const sentinelLock = ` from pg_locks l join pg_stat_activity a on a.pid = l.pid
	where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.classid::bigint = 1650815602 and l.objid::bigint = 2
	  and l.database = (select oid from pg_database where datname = current_database())`

// sentinel is the process that holds the sentinel's lock; nil: none.
func (s *scene) sentinel(ctx context.Context) (*member, error) {
	var role string
	err := s.pool.QueryRow(ctx, "select a.usename"+sentinelLock).Scan(&role)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // nobody is a valid answer
	}
	if err != nil {
		return nil, fmt.Errorf("look for the sentinel: %w", err)
	}
	for i, m := range s.apis {
		if apiRole(i) == role {
			return m, nil
		}
	}
	return nil, fmt.Errorf("the sentinel is %q, which is no process of the fleet", role)
}
