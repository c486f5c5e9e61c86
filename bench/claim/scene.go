package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/bench/front"
	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/internal/postgres"
)

// StoreURLVariable is the environment variable that tells a front where its store is. A command line would show the
// password to everybody.
const StoreURLVariable = "BENCH_STORE_URL"

// scene is a subject that runs on fresh state. Its close ends it and forgets the state.
type scene struct {
	rig     *rig
	subject string
	servers []server
	// database that it works on; empty without one.
	database string
	fleet    *fleet
	store    *postgres.Store // that of workers; for Lifecycle
}

// server is one process that answers requests.
type server struct {
	process  *lab.Child
	address  string
	profiled bool
}

// raise starts a subject with a number of server processes, on a copy of template if it needs a database.
func (r *rig) raise(ctx context.Context, subject, template string, servers int) (*scene, error) {
	s := &scene{rig: r, subject: subject}
	if err := s.raise(ctx, template, servers); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", subject, err), s.close(ctx))
	}
	return s, nil
}

func (s *scene) raise(ctx context.Context, template string, servers int) (err error) {
	switch s.subject {
	case Berth, Lifecycle:
		err = s.raiseBerth(ctx, template)
	case front.PGNaive:
		s.database, err = s.rig.postgres.Copy(ctx, template, lab.CopyFiles)
	case front.RedisArticle, front.RedisLua, front.RedisLuaLiteral:
		err = s.rig.redis.reset(ctx, s.rig.cfg.Workers)
	}
	if err != nil {
		return err
	}
	for range servers {
		if err := s.serve(ctx); err != nil {
			return err
		}
	}
	return s.rig.checkpoint(ctx)
}

// raiseBerth makes a database whose workers are present.
func (s *scene) raiseBerth(ctx context.Context, template string) (err error) {
	if s.database, err = s.rig.postgres.Copy(ctx, template, lab.CopyFiles); err != nil {
		return err
	}
	url := s.rig.postgres.URL(s.database)
	if s.fleet, err = startFleet(ctx, url); err != nil || s.subject != Lifecycle {
		return err
	}
	s.store, err = postgres.Open(ctx, postgres.Config{URL: url, Name: "berth bench workers", PoolSize: workerPool})
	return err
}

// serve starts one more server process.
func (s *scene) serve(ctx context.Context) error {
	addresses, err := lab.FreeAddresses(ctx, 1)
	if err != nil {
		return err
	}
	address := addresses[0]
	arguments := []string{"bench", "front", "--listen", address, "--slots", fmt.Sprint(s.rig.cfg.Slots), s.subject}
	environment := []string{StoreURLVariable + "=" + s.storeURL()}
	if s.subject == Berth || s.subject == Lifecycle {
		arguments = []string{"api"}
		environment = []string{"BERTH_LISTEN=" + address, "BERTH_DATABASE_URL=" + s.storeURL()}
	}
	profile := s.rig.cfg.profile(s.subject, s.database)
	if profile != "" {
		arguments = append([]string{"bench", "profiled", profile}, arguments...)
	}
	command := exec.Command(s.rig.cfg.Binary, arguments...) //nolint:noctx // it lives until close
	command.Env = append(lab.Inherited(os.Environ()), environment...)
	process, err := lab.StartChild(command)
	if err != nil {
		return err
	}
	s.servers = append(s.servers, server{process, address, profile != ""})
	return process.Await(ctx, lab.Answers(address))
}

// profile is the file for the CPU profile of the next process of a subject; empty for none.
func (c Config) profile(subject, state string) string {
	if c.ProfileDir == "" {
		return ""
	}
	return filepath.Join(c.ProfileDir, strings.TrimSuffix(subject+"-"+state, "-")+".pprof")
}

func (s *scene) storeURL() string {
	switch {
	case s.database != "":
		return s.rig.postgres.URL(s.database)
	case strings.HasPrefix(s.subject, "redis_"):
		return s.rig.redis.URL
	default:
		return ""
	}
}

// cpu reads the processes of the scene, and this one.
func (s *scene) cpu() cpuReading {
	reading := cpuReading{load: lab.ProcessCPU(os.Getpid())}
	for _, server := range s.servers {
		reading.server += lab.ProcessCPU(server.process.PID())
	}
	switch {
	case s.database != "":
		reading.store = lab.FamilyCPU(s.rig.postgres.PID())
	case strings.HasPrefix(s.subject, "redis_"):
		reading.store = lab.FamilyCPU(s.rig.redis.PID())
	}
	return reading
}

// close ends the server processes and forgets the state.
func (s *scene) close(ctx context.Context) error {
	for _, server := range s.servers {
		if server.profiled {
			server.process.Stop(syscall.SIGTERM) // it writes the profile when it stops in order
		} else {
			server.process.Kill()
		}
	}
	if s.store != nil {
		s.store.Close()
	}
	var errs []error
	if s.fleet != nil {
		errs = append(errs, s.fleet.close(ctx))
	}
	if s.database != "" {
		errs = append(errs, s.rig.postgres.Drop(ctx, s.database))
	}
	return errors.Join(errs...)
}

// audit compares the store with the number of answers that said that a session was placed.
func (s *scene) audit(ctx context.Context, placed int) error {
	switch s.subject {
	case Berth, Lifecycle:
		return s.auditBerth(ctx, placed)
	case front.PGNaive:
		return s.rig.within(ctx, s.database, func(conn *pgx.Conn) error {
			var sessions, taken int
			err := conn.QueryRow(ctx, `select (select count(*) from sessions),
				(select count(*) from slots where session is not null)`).Scan(&sessions, &taken)
			return errors.Join(err, s.same(placed, sessions), s.same(placed, taken))
		})
	case front.RedisArticle, front.RedisLua, front.RedisLuaLiteral:
		owners, load, err := s.rig.redis.sessions(ctx)
		return errors.Join(err, s.same(placed, owners), s.same(placed, load))
	default:
		return nil
	}
}

func (s *scene) auditBerth(ctx context.Context, placed int) error {
	return s.rig.within(ctx, s.database, func(conn *pgx.Conn) error {
		var sessions, taken, live, violations int
		err := conn.QueryRow(ctx, `select (select count(*) from berth.sessions),
			(select count(*) from berth.slots where session is not null),
			(select count(*) from berth.sessions where state in ('assigned', 'active')),
			(select count(*) from berth.violations)`).Scan(&sessions, &taken, &live, &violations)
		return errors.Join(err, s.same(placed, sessions), s.same(live, taken), s.same(0, violations))
	})
}

func (s *scene) same(want, got int) error {
	if want == got {
		return nil
	}
	return fmt.Errorf("%s: the store holds %d where it should hold %d", s.subject, got, want)
}
