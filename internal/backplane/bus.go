package backplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxInbox bounds the notifications that wait to be dispatched, of 8 kB at most each.
	maxInbox = 1024
	// retention and idleLife are what Purge leaves: messages of the last five minutes, and topics used in the last hour, if ever.
	retention = 5 * time.Minute
	idleLife  = time.Hour
	// ownConnections is how many connections a pool has that a Bus makes itself.
	ownConnections = 6
	// purgeTopics is how many topics one statement of Purge sees to.
	purgeTopics = 500
)

// Config is what a Bus is made of.
type Config struct {
	// Pool is for queries. It may lead through a pooler, and the Bus does not close it. Nil: one of its own, of DirectURL.
	Pool *pgxpool.Pool
	// DirectURL is for the listener, and must lead to Postgres itself. Required.
	DirectURL string
	// Database is the number of the database in a Cluster, which is a label of the metrics.
	Database int
	// Process is the key of this process, positive and never used before. Zero: a random one.
	Process int64
	// Sender names the sender that messages of a topic are of. Senders take turns, and are refused apart when too much waits of
	// one; what the program itself has to say is of no name, and has every second turn. Nil: all are of no name.
	Sender func(topic string) string
	// Logger gets what happens to the listener. Nil: nobody does.
	Logger *slog.Logger
	// Registerer gets the metrics. Nil: nobody does.
	Registerer prometheus.Registerer
	// Linger is for how long interest in a topic outlives its last subscriber. Zero: 2 s.
	Linger time.Duration
	// CountInterval is how often the database is told at most of topics whose members changed in number. Zero: 1 s.
	CountInterval time.Duration
	// ListeningAge is for how long the process remembers which others listen. Zero: 1 s.
	ListeningAge time.Duration
	// ResetSpread is over what time resets are spread at most, when the database lost its topics: a millisecond for each
	// subscriber of the process, up to this. Zero: 5 s.
	ResetSpread time.Duration
	// ProbeInterval is how often the listener is asked for a sign of life, and closed if there is nothing to listen for. Zero: 4 s.
	ProbeInterval time.Duration
	// ProbeTimeout is how long that may take. Zero: 4 s.
	ProbeTimeout time.Duration
	// WatchInterval is how often the database is asked about the listener, more or less. Zero: 5 s.
	WatchInterval time.Duration
	// QueueBound is how full the server's queue of notifications may be, from 0 to 1, before the process drops its listener
	// once, as that may be what holds it up. Zero: 0.25.
	QueueBound float64
	// CompareInterval is how often positions are compared with the tables, more or less. Zero: 12 s.
	CompareInterval time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.DirectURL == "" || c.Process < 0 || c.Database < 0 {
		return c, errors.New("backplane: a direct url is required, and process key and number of the database are not negative")
	}
	c.Process = cmp.Or(c.Process, 1+rand.Int64N(1<<62))
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Sender == nil {
		c.Sender = func(string) string { return "" }
	}
	c.Linger = cmp.Or(c.Linger, 2*time.Second)
	c.CountInterval = cmp.Or(c.CountInterval, time.Second)
	c.ListeningAge = cmp.Or(c.ListeningAge, time.Second)
	c.ResetSpread = cmp.Or(c.ResetSpread, 5*time.Second)
	c.ProbeInterval = cmp.Or(c.ProbeInterval, 4*time.Second)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 4*time.Second)
	c.WatchInterval = cmp.Or(c.WatchInterval, 5*time.Second)
	c.QueueBound = cmp.Or(c.QueueBound, 0.25)
	c.CompareInterval = cmp.Or(c.CompareInterval, 12*time.Second)
	return c, nil
}

// Bus is the backplane of one process. It is safe for concurrent use between Start and Close.
type Bus struct {
	config    Config
	store     *store
	metrics   *metrics
	publisher *publisher
	streams   *streams
	history   *historian
	roll      *roll
	listener  *listener
	inbox     chan string // payloads of notifications
	overflow  atomic.Bool // some were dropped

	life    sync.Mutex    // guards the rest
	pool    *pgxpool.Pool // its own, if none was given
	stop    context.CancelFunc
	closed  bool
	running sync.WaitGroup
}

// New makes a backplane, and connects to nothing.
func New(config Config) (*Bus, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Bus{config: config, streams: newStreams(), inbox: make(chan string, maxInbox)}
	if b.listener, err = newListener(b, config); err != nil {
		return nil, err
	}
	if config.Registerer != nil {
		labels := prometheus.Labels{"database": strconv.Itoa(config.Database)}
		config.Registerer = prometheus.WrapRegistererWith(labels, config.Registerer)
	}
	if b.metrics, err = newMetrics(config.Registerer, func() int { return len(b.inbox) }); err != nil {
		return nil, fmt.Errorf("register backplane metrics: %w", err)
	}
	b.store = &store{pool: config.Pool, process: config.Process}
	b.publisher = newPublisher(b.store.publish, config.Sender, b.metrics)
	b.history = newHistorian(b.store.read, b.metrics)
	b.roll = &roll{read: b.store.listening, life: config.ListeningAge}
	return b, nil
}

// newPool is for what a Bus does at the same time.
func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	settings, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errBadURL
	}
	settings.MaxConns = ownConnections
	settings.ConnConfig.RuntimeParams["application_name"] = "berth topics"
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("open pool of the backplane: %w", err)
	}
	return pool, nil
}

// channel is where the database notifies a process.
func channel(process int64) string { return "berth_p_" + strconv.FormatInt(process, 16) }

// Start lets the Bus work until Close. It connects to nothing: the first subscription does. ctx gives values only.
func (b *Bus) Start(ctx context.Context) error {
	b.life.Lock()
	defer b.life.Unlock()
	if b.closed || b.stop != nil {
		return fmt.Errorf("start: %w, or started before", ErrClosed)
	}
	ctx = context.WithoutCancel(ctx)
	if b.config.Pool == nil {
		pool, err := newPool(ctx, b.config.DirectURL)
		if err != nil {
			return err
		}
		b.store.pool, b.pool = pool, pool
	}
	ctx, b.stop = context.WithCancel(ctx)
	b.publisher.start()
	parts := []func(context.Context){
		b.publisher.run, b.listener.run, b.dispatch, b.read, b.history.run, b.tidy, b.count, b.watch, b.compare,
	}
	for _, part := range parts {
		b.running.Go(func() { part(ctx) })
	}
	return nil
}

// Close refuses whatever comes later, waits for what is in flight, and takes the process's interest out of the database.
// It may take some seconds if the database does not answer. It is idempotent, and may be called without Start.
func (b *Bus) Close() {
	b.life.Lock()
	stop := b.stop
	b.closed = true
	b.life.Unlock()
	b.publisher.close()
	b.streams.close()
	if stop != nil {
		stop()
	}
	b.running.Wait()
	if b.pool != nil {
		b.pool.Close()
	}
}

// Check opens a connection of DirectURL and proves that notifications arrive on it: ErrPooled if they do not. A process
// that asks at its start need not find out when the first subscriber comes.
func (b *Bus) Check(ctx context.Context) error { return b.listener.check(ctx) }

// Publish appends messages to their topics, in this order, all or none, and has the processes told that are interested. It
// returns when that is committed, and says of each message, in this order, where it is and who was told. Its errors are
// ErrInvalid and ErrTooLarge, of the first message that is either, ErrUnavailable, ErrClosed, and ctx's; after ErrUnavailable and
// ctx's the outcome may be unknown.
//
// What one goroutine publishes keeps its order. Each call is part of one batch; what is called while one is in flight
// waits for one of the next: senders take turns, see Config.Sender.
func (b *Bus) Publish(ctx context.Context, messages ...Outgoing) ([]Published, error) {
	if err := checkAll(messages); err != nil {
		return nil, err
	}
	return b.publisher.do(ctx, messages)
}

// Subscribe calls deliver with each later message of a topic, in order and one at a time, until Unsubscribe or Close.
// deliver must only enqueue: while it runs, other subscribers wait.
//
// First of all deliver gets the opening: a notice that says where the subscription begins. With a position, it also says
// what became of the wish to go on from there; see Outcome. Then come the messages that are kept after it, and then those that
// are published later. The opening and that replay are on the caller's goroutine and end before Subscribe returns, so
// meanwhile deliver may wait for its reader. A reset begins with what is published later, as from nil does.
//
// At any time a notice may say that messages cannot be had: Partial, or Reset, after which the new epoch comes from its
// beginning. Its errors are ErrInvalid, ErrPooled, ErrUnavailable, ErrClosed and ctx's.
func (b *Bus) Subscribe(
	ctx context.Context, topic string, from *Position, deliver func(Message),
) (*Subscription, error) {
	if err := checkStart(topic, from); err != nil {
		return nil, err
	}
	if !b.started() {
		return nil, ErrClosed
	}
	s, err := b.streams.join(ctx, topic)
	if err != nil {
		return nil, err
	}
	sub := &Subscription{
		topic: topic, deliver: deliver, holding: true,
		leave: func(sub *Subscription) { b.streams.leave(s, sub) },
	}
	b.streams.attach(s, sub)
	if err := sub.begin(from, func(after int64) (page, error) { return b.history.page(ctx, topic, after) }); err != nil {
		sub.Unsubscribe()
		return nil, err
	}
	return sub, nil
}

func (b *Bus) started() bool {
	b.life.Lock()
	defer b.life.Unlock()
	return b.stop != nil && !b.closed
}

// Purge deletes messages older than five minutes, topics that were not used for an hour or that nobody ever used, and the
// interest of processes that are gone. A job calls it every minute or so, in one process.
func (b *Bus) Purge(ctx context.Context) error {
	if !b.started() {
		return ErrClosed
	}
	for {
		found, err := b.store.purge(ctx, retention, idleLife, purgeTopics)
		if err != nil || found < purgeTopics {
			return err
		}
	}
}

// resync has every topic read from its position; with register, interest in it is made anew first.
func (b *Bus) resync(cause string, register bool) {
	b.metrics.resyncs.WithLabelValues(cause).Inc()
	b.streams.resync(register)
}
