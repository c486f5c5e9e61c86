package connections

import (
	"context"
	"fmt"
	"time"

	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/bench/rival"
	"github.com/berthdev/berth/bench/socket"
)

// scene is one server process that clients connect to, with what it needs.
type scene struct {
	holder    *lab.Process // of the sockets
	join      func(ctx context.Context, i int) (*socket.Conn, error)
	subscribe func(c *socket.Conn, topics []string) error
	answers   func(message []byte) int // to subscribe
	close     func(ctx context.Context) error
}

func (r *rig) raise(ctx context.Context, s subject) (*scene, error) {
	if s.centrifuge {
		return r.raiseCentrifuge(ctx, s)
	}
	return r.raiseBerth(ctx, s)
}

func (r *rig) raiseBerth(ctx context.Context, s subject) (*scene, error) {
	variables := []string{"BERTH_UPGRADE_RATE=1000000/s", "BERTH_PING_INTERVAL=" + r.cfg.Ping.String()}
	if s.compressed {
		variables = append(variables, "BERTH_COMPRESSION=on")
	}
	fleet, err := r.postgres.Raise(ctx, template, lab.FleetConfig{
		Binary: r.cfg.Binary, Region: region, Workers: 1, Worker: variables,
	})
	if err != nil {
		return nil, err
	}
	api := socket.NewAPI("http://"+fleet.API.Address, r.key)
	return &scene{
		holder: fleet.Workers[0],
		join: func(ctx context.Context, i int) (*socket.Conn, error) {
			placement, err := api.Place(ctx, fmt.Sprintf("c-%d", i/2), []string{"a", "b"}[i%2], region)
			if err != nil {
				return nil, err
			}
			return socket.Join(ctx, placement, socket.Options{Compression: s.compressed})
		},
		subscribe: func(c *socket.Conn, topics []string) error { return c.Subscribe(topics...) },
		answers:   subscribed,
		close: func(ctx context.Context) error {
			api.Close()
			return fleet.Close(ctx)
		},
	}, nil
}

// subscribed is how many topics a frame of a worker says to be subscribed to.
func subscribed(message []byte) int {
	if socket.Kind(message) == "subscribed" {
		return 1
	}
	return 0
}

func (r *rig) raiseCentrifuge(ctx context.Context, s subject) (*scene, error) {
	fleet, err := rival.Raise(ctx, rival.Config{Binary: r.cfg.Centrifuge, Processes: 1, Lean: s.lean, Ping: r.cfg.Ping})
	if err != nil {
		return nil, err
	}
	holder := fleet.Processes[0]
	return &scene{
		holder:    holder,
		join:      func(ctx context.Context, _ int) (*socket.Conn, error) { return rival.Join(ctx, holder.Address) },
		subscribe: func(c *socket.Conn, topics []string) error { return rival.Subscribe(c, topics...) },
		answers:   rival.Subscribed,
		close:     func(context.Context) error { return fleet.Close() },
	}, nil
}

const (
	// openers is how many connections are made at a time.
	openers = 48
	// answerLimit bounds the answers to one subscribe.
	answerLimit = time.Minute
	// settlePeriods of pings is how long it may take until all were pinged.
	settlePeriods = 3
)

// fill opens n connections with their subscriptions and waits until all are idle. The crowd must be closed. After an error
// there is none.
func (r *rig) fill(ctx context.Context, s subject, at *scene) (*socket.Crowd, error) {
	done := make([]chan struct{}, r.cfg.N)
	for i := range done {
		done[i] = make(chan struct{})
	}
	counts := make([]int, r.cfg.N) // each is its reader's
	crowd, err := socket.Open(ctx, r.cfg.N, openers, at.join, func(i int, message []byte) {
		before := counts[i]
		counts[i] += at.answers(message)
		if before < s.topics && counts[i] >= s.topics {
			close(done[i])
		}
	})
	if err != nil {
		return nil, err
	}
	if s.topics > 0 {
		err = socket.Each(ctx, r.cfg.N, openers, func(ctx context.Context, i int) error {
			if err := at.subscribe(crowd.Conns[i], topicsOf(i, s.topics)); err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
			return await(ctx, done[i])
		})
	}
	if err == nil {
		err = crowd.Settle(ctx, settlePeriods*r.cfg.Ping)
	}
	if err != nil {
		crowd.Close()
		return nil, err
	}
	return crowd, nil
}

func await(ctx context.Context, done <-chan struct{}) error {
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("subscribe: not answered in %s", answerLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// topicsOf a connection are shared with one other: its partner in the call.
func topicsOf(i, n int) []string {
	topics := make([]string, n)
	for k := range topics {
		topics[k] = fmt.Sprintf("call:%d.%d", i/2, k)
	}
	return topics
}
