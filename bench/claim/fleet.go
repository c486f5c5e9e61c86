package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

const (
	// region is where every worker is and every session is asked for.
	region = "local"
	// fleetLease is that of workers by default, and fleetRenewal is twice as often as theirs.
	fleetLease   = 6 * time.Second
	fleetRenewal = time.Second
	// registrars is how many workers register at a time.
	registrars = 4
)

func workerID(i int) string { return fmt.Sprintf("w-%04d", i+1) }

// register makes workers that are open for work, as if each had started an hour ago.
func register(ctx context.Context, store *postgres.Store, workers, slots int) error {
	group, registering := errgroup.WithContext(ctx)
	group.SetLimit(registrars)
	for i := range workers {
		group.Go(func() error { return registerOne(registering, store, workerID(i), slots) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("register workers: %w", err)
	}
	_, err := store.Pool().Exec(ctx, "update berth.workers set registered_at = registered_at - interval '1 hour'")
	return err
}

func registerOne(ctx context.Context, store *postgres.Store, id string, slots int) error {
	instance, err := store.NextInstance(ctx)
	if err != nil {
		return err
	}
	held, err := store.Register(ctx, berth.Registration{
		WorkerID: id, Instance: instance, Region: region, Capacity: slots, Version: "bench", Lease: time.Hour,
		SignalingURL: "wss://" + id + ".example.com/rtc", ControlURL: "http://127.0.0.1:1",
	})
	if err != nil {
		return err
	}
	if held {
		return fmt.Errorf("worker %s is held by another instance", id)
	}
	return store.Open(ctx, id, instance)
}

// fleet stands for the workers of one database: it holds their presence and renews their leases. Close waits for it.
type fleet struct {
	presence  *pgx.Conn // runs nothing after it took the locks
	renewals  *pgx.Conn
	instances map[string]berth.Instance // by worker
	cancel    context.CancelFunc
	running   sync.WaitGroup
	err       error // of the renewals; after running
}

func startFleet(ctx context.Context, url string) (*fleet, error) {
	f := &fleet{instances: map[string]berth.Instance{}, cancel: func() {}}
	if err := f.start(ctx, url); err != nil {
		return nil, errors.Join(fmt.Errorf("start fleet: %w", err), f.close(ctx))
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, url string) (err error) {
	if f.presence, err = pgx.Connect(ctx, url); err != nil {
		return err
	}
	if f.renewals, err = pgx.Connect(ctx, url); err != nil {
		return err
	}
	if err := f.takePresence(ctx); err != nil {
		return err
	}
	if err := f.renew(ctx); err != nil {
		return err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.running.Go(func() { f.err = f.keep(ctx) })
	return nil
}

// takePresence takes the lock of every instance: 1650815592 is the class of presence locks.
func (f *fleet) takePresence(ctx context.Context) error {
	rows, err := f.presence.Query(ctx, "select id, instance, pg_try_advisory_lock(1650815592, instance) from berth.workers")
	if err != nil {
		return err
	}
	var id string
	var instance int32
	var taken bool
	_, err = pgx.ForEachRow(rows, []any{&id, &instance, &taken}, func() error {
		if !taken {
			return fmt.Errorf("the presence of worker %s is held by another", id)
		}
		f.instances[id] = berth.Instance(instance)
		return nil
	})
	return err
}

func (f *fleet) renew(ctx context.Context) error {
	_, err := f.renewals.Exec(ctx, `update berth.worker_leases
		set renewed_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => $1)`, fleetLease.Seconds())
	return err
}

// keep renews until ctx ends.
func (f *fleet) keep(ctx context.Context) error {
	ticker := time.NewTicker(fleetRenewal)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := f.renew(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("renew leases: %w", err)
		}
	}
}

// close ends the fleet. Its error says that workers were not renewed, so that the measurement is void.
func (f *fleet) close(ctx context.Context) error {
	f.cancel()
	f.running.Wait()
	errs := []error{f.err}
	for _, conn := range []*pgx.Conn{f.presence, f.renewals} {
		if conn != nil {
			errs = append(errs, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	return errors.Join(errs...)
}
