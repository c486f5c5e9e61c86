package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/berthdev/berth/internal/berth"
)

// Config holds what is optional of a Runner.
type Config struct {
	// Schema holds River's tables. Empty: "river".
	Schema string
	// TickInterval is the period of the reaper. Zero: one second.
	TickInterval time.Duration
	// Sentinel watches workers between ticks. Nil: nobody does in this process.
	Sentinel *Sentinel
	// Topics is the backplane that is purged each minute. Nil: none is.
	Topics Purger
	// KeepConnections has no worker shed connections because others have fewer.
	KeepConnections bool
}

// Purger deletes what topics need not keep.
type Purger interface {
	Purge(ctx context.Context) error
}

const (
	jobTimeout = tickLimit + 5*time.Second
	// keepCompleted bounds River's table: a day of ticks would be 86,400 rows.
	keepCompleted = 10 * time.Minute
	pollInterval  = 200 * time.Millisecond
	jobWorkers    = 4

	// deadSlots is how many dead entries claims may have to step over, every vacuumPeriod: 15,000 cost each claim 0.4 ms,
	// and removing them among 200,000 slots takes 0.1 s.
	deadSlots    = 2000
	vacuumPeriod = 5 * time.Second
)

// Runner runs periodic jobs on River. One replica's client leads and inserts them; any may work them.
type Runner struct {
	client   *river.Client[pgx.Tx]
	reaper   *Reaper
	sentinel *Sentinel
	gauge    *gauge

	mu      sync.Mutex // guards cancel
	cancel  context.CancelFunc
	reading sync.WaitGroup
}

type tickArgs struct{}

// Kind names the job in River's table.
func (tickArgs) Kind() string { return "reaper_tick" }

type retentionArgs struct{}

// Kind names the job in River's table.
func (retentionArgs) Kind() string { return "retention" }

type rotationArgs struct{}

// Kind names the job in River's table.
func (rotationArgs) Kind() string { return "key_rotation" }

type vacuumArgs struct{}

// Kind names the job in River's table.
func (vacuumArgs) Kind() string { return "vacuum_slots" }

type topicsArgs struct{}

// Kind names the job in River's table.
func (topicsArgs) Kind() string { return "purge_topics" }

type rebalanceArgs struct{}

// Kind names the job in River's table.
func (rebalanceArgs) Kind() string { return "rebalance" }

type auditArgs struct{}

// Kind names the job in River's table.
func (auditArgs) Kind() string { return "audit" }

// Store is the database as the jobs beside the reaper need it.
type Store interface {
	RetentionStore
	AuditStore
	PressureStore
	RebalanceStore
}

// NewRunner makes a runner over pool, which must reach Postgres with the schema of package migrations.
func NewRunner(
	pool *pgxpool.Pool, reaper *Reaper, store Store, logger *slog.Logger, registry prometheus.Registerer, config Config,
) (*Runner, error) {
	auditor, err := newAuditor(store, logger, registry)
	if err != nil {
		return nil, err
	}
	rebalancer, err := newRebalancer(store, logger, registry)
	if err != nil {
		return nil, err
	}
	gauge, err := newGauge(store, logger, registry)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:                      cmp.Or(config.Schema, "river"),
		Logger:                      slog.New(warningsOnly{logger.Handler()}),
		Queues:                      map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: jobWorkers}},
		Workers:                     riverWorkers(reaper, store, auditor, rebalancer, config.Topics),
		PeriodicJobs:                periodicJobs(config),
		JobTimeout:                  jobTimeout,
		RescueStuckJobsAfter:        2 * jobTimeout,
		CompletedJobRetentionPeriod: keepCompleted,
		DiscardedJobRetentionPeriod: time.Hour,
		FetchPollInterval:           pollInterval,
		PollOnly:                    true,
		Middleware:                  []rivertype.Middleware{river.JobInsertMiddlewareFunc(dueAtOnce)},
	})
	if err != nil {
		return nil, fmt.Errorf("make river client: %w", err)
	}
	return &Runner{client: client, reaper: reaper, sentinel: config.Sentinel, gauge: gauge}, nil
}

// dueAtOnce makes jobs due when they are inserted. River would have them wait for the time of this process's clock, and a
// leader whose clock is fast would keep ticks away from everybody.
func dueAtOnce(
	ctx context.Context, jobs []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error),
) ([]*rivertype.JobInsertResult, error) {
	due := time.Unix(0, 0) // by any clock
	for _, job := range jobs {
		job.ScheduledAt = &due
	}
	return insert(ctx)
}

// riverWorkers says what each kind of job does.
func riverWorkers(
	reaper *Reaper, store RetentionStore, auditor *auditor, rebalancer *rebalancer, topics Purger,
) *river.Workers {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[tickArgs]) error {
		return reaper.Tick(ctx)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[retentionArgs]) error {
		return retain(ctx, store)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[rotationArgs]) error {
		return store.RotateKeys(ctx)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[vacuumArgs]) error {
		return store.VacuumSlots(ctx, deadSlots)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[topicsArgs]) error {
		if topics == nil {
			return nil
		}
		return topics.Purge(ctx)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[rebalanceArgs]) error {
		return rebalancer.rebalance(ctx)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[auditArgs]) error {
		return auditor.audit(ctx)
	}))
	return workers
}

// periodicJobs are not unique: a tick rests its exclusion on the advisory lock, and a job that was killed while
// running would block its successors.
func periodicJobs(config Config) []*river.PeriodicJob {
	once := &river.InsertOpts{MaxAttempts: 1}
	periodic := []*river.PeriodicJob{
		river.NewPeriodicJob(river.PeriodicInterval(cmp.Or(config.TickInterval, time.Second)),
			func() (river.JobArgs, *river.InsertOpts) { return tickArgs{}, once },
			&river.PeriodicJobOpts{RunOnStart: true}),
		river.NewPeriodicJob(river.PeriodicInterval(10*time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return retentionArgs{}, once }, nil),
		river.NewPeriodicJob(river.PeriodicInterval(vacuumPeriod),
			func() (river.JobArgs, *river.InsertOpts) { return vacuumArgs{}, once }, nil),
		river.NewPeriodicJob(river.PeriodicInterval(time.Hour),
			func() (river.JobArgs, *river.InsertOpts) { return rotationArgs{}, once }, nil),
		river.NewPeriodicJob(river.PeriodicInterval(time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return topicsArgs{}, once }, nil),
		river.NewPeriodicJob(river.PeriodicInterval(time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return auditArgs{}, once }, &river.PeriodicJobOpts{RunOnStart: true}),
	}
	if !config.KeepConnections {
		periodic = append(periodic, river.NewPeriodicJob(river.PeriodicInterval(berth.RebalanceInterval),
			func() (river.JobArgs, *river.InsertOpts) { return rebalanceArgs{}, once }, nil))
	}
	return periodic
}

// Start runs jobs until Stop.
func (r *Runner) Start(ctx context.Context) error {
	r.reaper.Start(ctx)
	if err := r.client.Start(ctx); err != nil {
		r.reaper.Stop()
		return fmt.Errorf("start river: %w", err)
	}
	if r.sentinel != nil {
		r.sentinel.Start(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel == nil {
		ctx, r.cancel = context.WithCancel(ctx)
		r.reading.Go(func() { r.gauge.run(ctx) })
	}
	return nil
}

// Stop cancels running jobs, which may be cut anywhere, and waits for them until ctx ends. It is idempotent.
func (r *Runner) Stop(ctx context.Context) error {
	if r.sentinel != nil {
		r.sentinel.Stop()
	}
	r.reaper.Stop()
	r.stopReading()
	if err := r.client.StopAndCancel(ctx); err != nil {
		return fmt.Errorf("stop river: %w", err)
	}
	return nil
}

func (r *Runner) stopReading() {
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	r.reading.Wait()
}

// warningsOnly drops River's routine lines: two a tick would bury ours.
type warningsOnly struct{ slog.Handler }

// Enabled reports whether a line of this level is wanted.
func (w warningsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the wrapper around a logger that River derives.
func (w warningsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warningsOnly{w.Handler.WithAttrs(attrs)}
}

// WithGroup does the same for groups.
func (w warningsOnly) WithGroup(name string) slog.Handler {
	return warningsOnly{w.Handler.WithGroup(name)}
}
