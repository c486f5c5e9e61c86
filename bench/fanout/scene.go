package fanout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/bench/rival"
	"github.com/berthdev/berth/bench/socket"
)

// pingInterval of all connections.
const pingInterval = 10 * time.Second

// scene is one system with its store.
type scene struct {
	servers []*lab.Process // all but the store
	holders []*lab.Process // those of them that hold connections
	store   func() []int   // processes of the store
	hearing func(ctx context.Context) ([]int, error)

	// join connects a member, and says on which holder it is.
	join      func(ctx context.Context, member int) (c *socket.Conn, holder int, err error)
	subscribe func(c *socket.Conn, topic string) error
	answers   func(message []byte) int // to subscribe
	publish   func(ctx context.Context, topic string, at time.Time) error
	// counters of a holder: messages that came over the backplane, and those that it had a member for. The second is less
	// than zero where nobody counts it.
	counters func(lab.Metrics) (received, delivered float64)
	close    func(ctx context.Context) error
}

func (r *rig) raise(ctx context.Context, system string) (*scene, error) {
	if system == Centrifuge {
		return r.raiseCentrifuge(ctx)
	}
	return r.raiseBerth(ctx)
}

func (r *rig) raiseBerth(ctx context.Context) (*scene, error) {
	fleet, err := r.postgres.Raise(ctx, template, lab.FleetConfig{
		Binary: r.cfg.Binary, Region: region, Workers: r.cfg.Processes,
		Worker: []string{"BERTH_UPGRADE_RATE=1000000/s", "BERTH_PING_INTERVAL=" + pingInterval.String()},
	})
	if err != nil {
		return nil, err
	}
	api := socket.NewAPI("http://"+fleet.API.Address, r.key)
	index := map[string]int{}
	for i, w := range fleet.Workers {
		index[w.ID] = i
	}
	return &scene{
		servers: append([]*lab.Process{fleet.API}, fleet.Workers...), holders: fleet.Workers,
		store:   func() []int { return lab.Family(r.postgres.PID()) },
		hearing: r.listeners,
		join: func(ctx context.Context, member int) (*socket.Conn, int, error) {
			placement, err := api.Place(ctx, fmt.Sprintf("c-%d", member/2), []string{"a", "b"}[member%2], region)
			if err != nil {
				return nil, 0, err
			}
			c, err := socket.Join(ctx, placement, socket.Options{})
			return c, index[placement.Owner.WorkerID], err
		},
		subscribe: func(c *socket.Conn, topic string) error { return c.Subscribe(topic) },
		answers: func(message []byte) int {
			if socket.Kind(message) == "subscribed" {
				return 1
			}
			return 0
		},
		publish: func(ctx context.Context, topic string, at time.Time) error {
			_, err := api.Publish(ctx, topic, messageOf(at, r.cfg.Size))
			return err
		},
		counters: func(m lab.Metrics) (received, delivered float64) {
			return m.Sum("berth_backplane_received_total", ""), m.Sum("berth_backplane_delivered_total", "")
		},
		close: func(ctx context.Context) error {
			api.Close()
			return fleet.Close(ctx)
		},
	}, nil
}

// listeners are the backends that NOTIFY wakes.
func (r *rig) listeners(ctx context.Context) (pids []int, err error) {
	const ask = "select array_agg(pid) from pg_stat_activity where application_name like 'berth backplane %'"
	err = r.postgres.Admin.QueryRow(ctx, ask).Scan(&pids)
	return pids, err
}

func (r *rig) raiseCentrifuge(ctx context.Context) (*scene, error) {
	fleet, err := rival.Raise(ctx, rival.Config{
		Binary: r.cfg.Centrifuge, Processes: r.cfg.Processes, Redis: true, History: r.cfg.History, Ping: pingInterval,
	})
	if err != nil {
		return nil, err
	}
	publisher := rival.NewPublisher()
	var turn atomic.Int64
	return &scene{
		servers: fleet.Processes, holders: fleet.Processes,
		store:   func() []int { return []int{fleet.Redis.PID()} },
		hearing: func(context.Context) ([]int, error) { return nil, nil },
		join: func(ctx context.Context, _ int) (*socket.Conn, int, error) {
			holder := rand.IntN(len(fleet.Processes))
			c, err := rival.Join(ctx, fleet.Processes[holder].Address)
			return c, holder, err
		},
		subscribe: func(c *socket.Conn, topic string) error { return rival.Subscribe(c, topic) },
		answers:   rival.Subscribed,
		publish: func(ctx context.Context, topic string, at time.Time) error {
			to := fleet.Processes[int(turn.Add(1))%len(fleet.Processes)]
			return publisher.Publish(ctx, to.Address, topic, messageOf(at, r.cfg.Size))
		},
		counters: func(m lab.Metrics) (received, delivered float64) {
			return m.Sum("centrifuge_node_messages_received_count", `type="publication"`), -1
		},
		close: func(context.Context) error {
			publisher.Close()
			return fleet.Close()
		},
	}, nil
}
