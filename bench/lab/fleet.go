package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// FleetConfig says which processes of Berth a fleet has.
type FleetConfig struct {
	Binary  string   // path of berth
	Region  string   // of all
	Workers int      // processes
	API     []string // further variables of the API process
	Worker  []string // further variables of worker processes
}

// Fleet is one API process and some workers, on a copy of a template. It is for one goroutine.
type Fleet struct {
	API     *Process
	Workers []*Process

	server   *Server
	database string
}

// Process is one process of a fleet.
type Process struct {
	*Child

	ID      string
	Address string // of its HTTP server: the API's, or a worker's control address
}

// Raise starts a fleet and waits until it is ready. Load from one address is not limited. The fleet must be closed.
func (s *Server) Raise(ctx context.Context, template string, config FleetConfig) (*Fleet, error) {
	f := &Fleet{server: s}
	if err := f.start(ctx, template, config); err != nil {
		return nil, errors.Join(fmt.Errorf("start fleet: %w", err), f.Close(ctx))
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, template string, config FleetConfig) (err error) {
	if f.database, err = f.server.Copy(ctx, template, CopyLog); err != nil {
		return err
	}
	addresses, err := FreeAddresses(ctx, 1+3*config.Workers)
	if err != nil {
		return err
	}
	f.API, err = f.begin(config.Binary, "api", "api", addresses[0], append([]string{"BERTH_LISTEN=" + addresses[0]}, config.API...))
	if err != nil {
		return err
	}
	if err := f.API.Await(ctx, Answers(f.API.Address)); err != nil {
		return err
	}
	for i := range config.Workers {
		w, err := f.beginWorker(config, i, addresses[1+3*i:])
		if err != nil {
			return err
		}
		f.Workers = append(f.Workers, w)
	}
	return f.await(ctx)
}

func (f *Fleet) beginWorker(config FleetConfig, i int, addresses []string) (*Process, error) {
	id := fmt.Sprintf("w%d", i+1)
	return f.begin(config.Binary, "worker", id, addresses[1], append([]string{
		"BERTH_WORKER_ID=" + id,
		"BERTH_REGION=" + config.Region,
		"BERTH_SIGNALING_LISTEN=" + addresses[0],
		"BERTH_CONTROL_LISTEN=" + addresses[1],
		"BERTH_MEDIA_LISTEN=" + addresses[2],
		"BERTH_MEDIA_ANNOUNCE=127.0.0.1",
		"BERTH_UPGRADE_RATE_PER_ADDRESS=0/s",
	}, config.Worker...))
}

func (f *Fleet) begin(binary, command, id, address string, variables []string) (*Process, error) {
	c := exec.Command(binary, command) //nolint:noctx // it lives until Close
	c.Env = slices.Concat(Inherited(os.Environ()), []string{"BERTH_DATABASE_URL=" + f.server.URL(f.database)}, variables)
	child, err := StartChild(c)
	if err != nil {
		return nil, err
	}
	return &Process{Child: child, ID: id, Address: address}, nil
}

// await returns once all workers are open for sessions.
func (f *Fleet) await(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, f.server.URL(f.database))
	if err != nil {
		return err
	}
	for _, w := range f.Workers {
		if err = w.Await(ctx, func(ctx context.Context) (ready bool) {
			const ask = "select exists (select from berth.workers where id = $1 and state = 'ready')"
			return conn.QueryRow(ctx, ask, w.ID).Scan(&ready) == nil && ready
		}); err != nil {
			break
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(err, conn.Close(closing))
}

// Database is the name of the fleet's own.
func (f *Fleet) Database() string { return f.database }

// Close kills the fleet and forgets the state. It may be called more than once.
func (f *Fleet) Close(ctx context.Context) error {
	for _, p := range append(slices.Clone(f.Workers), f.API) {
		if p != nil {
			p.Kill()
		}
	}
	if f.database == "" {
		return nil
	}
	name := f.database
	f.database = ""
	return f.server.Drop(ctx, name)
}
