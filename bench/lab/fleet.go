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
	APIs    int      // processes; zero: one
	Workers int      // processes; more can be added
	API     []string // further variables of API processes
	Worker  []string // further variables of worker processes
}

// Fleet is some API processes and some workers, on a copy of a template. It is for one goroutine.
type Fleet struct {
	API     *Process // the first of APIs
	APIs    []*Process
	Workers []*Process

	config   FleetConfig
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
	f := &Fleet{server: s, config: config}
	if err := f.start(ctx, template); err != nil {
		return nil, errors.Join(fmt.Errorf("start fleet: %w", err), f.Close(ctx))
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, template string) (err error) {
	if f.database, err = f.server.Copy(ctx, template, CopyLog); err != nil {
		return err
	}
	addresses, err := FreeAddresses(ctx, max(1, f.config.APIs))
	if err != nil {
		return err
	}
	for i, address := range addresses {
		api, err := f.begin("api", fmt.Sprintf("api-%d", i+1), address, append([]string{"BERTH_LISTEN=" + address}, f.config.API...))
		if err != nil {
			return err
		}
		f.APIs = append(f.APIs, api)
	}
	f.API = f.APIs[0]
	for _, api := range f.APIs {
		if err := api.Await(ctx, Answers(api.Address)); err != nil {
			return err
		}
	}
	return f.Add(ctx, f.config.Workers)
}

// Add starts n more workers and waits until they are open for sessions.
func (f *Fleet) Add(ctx context.Context, n int) error {
	addresses, err := FreeAddresses(ctx, 3*n)
	if err != nil {
		return err
	}
	for i := range n {
		w, err := f.beginWorker(addresses[3*i:])
		if err != nil {
			return err
		}
		f.Workers = append(f.Workers, w)
	}
	return f.await(ctx)
}

func (f *Fleet) beginWorker(addresses []string) (*Process, error) {
	id := fmt.Sprintf("w%d", len(f.Workers)+1)
	return f.begin("worker", id, addresses[1], append([]string{
		"BERTH_WORKER_ID=" + id,
		"BERTH_REGION=" + f.config.Region,
		"BERTH_SIGNALING_LISTEN=" + addresses[0],
		"BERTH_CONTROL_LISTEN=" + addresses[1],
		"BERTH_MEDIA_LISTEN=" + addresses[2],
		"BERTH_MEDIA_ANNOUNCE=127.0.0.1",
		"BERTH_UPGRADE_RATE_PER_ADDRESS=0/s",
	}, f.config.Worker...))
}

func (f *Fleet) begin(command, id, address string, variables []string) (*Process, error) {
	c := exec.Command(f.config.Binary, command) //nolint:noctx // it lives until Close
	c.Env = slices.Concat(Inherited(os.Environ()), []string{"BERTH_DATABASE_URL=" + f.server.URL(f.database)}, variables)
	child, err := StartChild(c)
	if err != nil {
		return nil, err
	}
	return &Process{Child: child, ID: id, Address: address}, nil
}

// await returns once all workers that live are open for sessions.
func (f *Fleet) await(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, f.server.URL(f.database))
	if err != nil {
		return err
	}
	for _, w := range f.Workers {
		if w.Gone() {
			continue
		}
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
	for _, p := range append(slices.Clone(f.Workers), f.APIs...) {
		p.Kill()
	}
	if f.database == "" {
		return nil
	}
	name := f.database
	f.database = ""
	return f.server.Drop(ctx, name)
}
