package backplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// Cluster is a backplane over several databases, for more than one can carry. Each topic is in one of them, by its name
// alone; so all processes must name the same databases in the same order. Its methods are those of Bus.
type Cluster struct {
	buses   []*Bus
	meeting *meeting // nil: none

	life    sync.Mutex // guards the rest
	stop    context.CancelFunc
	running sync.WaitGroup
}

// ClusterConfig is what a Cluster is made of besides databases.
type ClusterConfig struct {
	// Meeting leads to the one database that all processes have, where they find out whether all have the same databases for
	// topics. It may lead through a pooler, and the Cluster does not close it. Nil: they do not find out.
	Meeting *pgxpool.Pool
	// MeetingInterval is how often they do, more or less. Zero: 12 s.
	MeetingInterval time.Duration
	// Logger gets what differs. Nil: nobody does.
	Logger *slog.Logger
	// Registerer gets a metric of that. Nil: nobody does.
	Registerer prometheus.Registerer
}

// NewCluster makes a backplane of one Bus per database, in the order that all processes have. It has them from then on.
func NewCluster(config ClusterConfig, buses ...*Bus) (*Cluster, error) {
	if len(buses) == 0 {
		return nil, errors.New("backplane: a cluster needs a database")
	}
	c := &Cluster{buses: buses}
	if config.Meeting == nil {
		return c, nil
	}
	config.MeetingInterval = cmp.Or(config.MeetingInterval, 12*time.Second)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	c.meeting = newMeeting(config, buses)
	if config.Registerer != nil {
		if err := config.Registerer.Register(c.meeting.mismatch); err != nil {
			return nil, fmt.Errorf("register backplane metrics: %w", err)
		}
	}
	return c, nil
}

// place is the number of the database that has a topic: that for which the hash of both is the highest. So with one more
// database at the end, only those topics move that go there.
func place(topic string, databases int) (number int) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(topic)) // never fails
	name, highest := hash.Sum64(), uint64(0)
	for i := range databases {
		if weight := mix(name ^ mix(uint64(i)+1)); weight >= highest {
			number, highest = i, weight
		}
	}
	return number
}

// mix spreads what differs in few bits over all: the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (c *Cluster) of(topic string) *Bus { return c.buses[place(topic, len(c.buses))] }

// Start starts the backplane of each database.
func (c *Cluster) Start(ctx context.Context) error {
	for i, bus := range c.buses {
		if err := bus.Start(ctx); err != nil {
			return inDatabase(i, err)
		}
	}
	if c.meeting == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	c.life.Lock()
	defer c.life.Unlock()
	ctx, c.stop = context.WithCancel(ctx)
	c.running.Go(func() { c.meeting.run(ctx) })
	return nil
}

func inDatabase(number int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("backplane database %d: %w", number, err)
}

// each calls one method of every Bus, all at once, and joins what fails.
func (c *Cluster) each(call func(*Bus) error) error {
	errs := make([]error, len(c.buses))
	var running sync.WaitGroup
	for i, bus := range c.buses {
		running.Go(func() { errs[i] = inDatabase(i, call(bus)) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// Close closes the backplane of each database.
func (c *Cluster) Close() {
	c.life.Lock()
	if c.stop != nil {
		c.stop()
	}
	c.life.Unlock()
	c.running.Wait()
	_ = c.each(func(bus *Bus) error { // none
		bus.Close()
		return nil
	})
}

// Check says of each database whether its URL leads to it.
func (c *Cluster) Check(ctx context.Context) error {
	return c.each(func(bus *Bus) error { return bus.Check(ctx) })
}

// Purge purges each database.
func (c *Cluster) Purge(ctx context.Context) error {
	return c.each(func(bus *Bus) error { return bus.Purge(ctx) })
}

// Publish is that of Bus. Of messages whose topics are in several databases, those of each are published together, and all at
// once: after an error some may have been published. Those of one topic keep their order.
func (c *Cluster) Publish(ctx context.Context, messages ...Outgoing) ([]Published, error) {
	if err := checkAll(messages); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, nil
	}
	parts, places := make(map[int][]Outgoing), make(map[int][]int)
	for i, m := range messages {
		number := place(m.Topic, len(c.buses))
		parts[number], places[number] = append(parts[number], m), append(places[number], i)
	}
	if len(parts) == 1 {
		return c.of(messages[0].Topic).Publish(ctx, messages...)
	}
	published, errs := make([]Published, len(messages)), make([]error, len(c.buses))
	var running sync.WaitGroup
	for number, part := range parts {
		running.Go(func() {
			got, err := c.buses[number].Publish(ctx, part...)
			errs[number] = inDatabase(number, err)
			for i, p := range got {
				published[places[number][i]] = p
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return published, nil
}

// Subscribe is that of Bus.
func (c *Cluster) Subscribe(
	ctx context.Context, topic string, from *Position, deliver func(Message),
) (*Subscription, error) {
	return c.of(topic).Subscribe(ctx, topic, from, deliver)
}

// Presence is that of Bus.
func (c *Cluster) Presence(ctx context.Context, topic string) (Presence, error) {
	return c.of(topic).Presence(ctx, topic)
}
