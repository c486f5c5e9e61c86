package rival

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/berthdev/berth/bench/lab"
)

// redisVariable is how the server is told of its Redis.
const redisVariable = "CENTRIFUGE_REDIS_URL"

// Config says which processes to run.
type Config struct {
	Binary    string // path of the server
	Processes int
	Redis     bool // share a Redis; otherwise each process is alone
	Lean      bool // the library's options for many idle connections
	History   int  // messages that are kept of each channel; 0: none
	Ping      time.Duration
}

// Fleet is some processes and their Redis. It is for one goroutine.
type Fleet struct {
	Processes []*lab.Process
	Redis     *lab.Redis // nil: there is none
}

// pongShare of the time between two pings is how long the library waits for the answer: it must be less than all of it.
const pongShare = 0.8

// Raise starts processes and waits until they are ready. They must be closed.
func Raise(ctx context.Context, config Config) (*Fleet, error) {
	f := &Fleet{}
	if err := f.start(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("start centrifuge: %w", err), f.Close())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, config Config) (err error) {
	environment := os.Environ()
	if config.Redis {
		if f.Redis, err = lab.StartRedis(ctx); err != nil {
			return err
		}
		environment = append(environment, redisVariable+"="+f.Redis.URL)
	}
	addresses, err := lab.FreeAddresses(ctx, config.Processes)
	if err != nil {
		return err
	}
	pong := time.Duration(float64(config.Ping) * pongShare)
	for i, address := range addresses {
		command := exec.Command(config.Binary, "-listen", address, "-ping", config.Ping.String(), "-pong", pong.String(), //nolint:noctx // it lives until Close
			"-lean="+strconv.FormatBool(config.Lean), "-history", strconv.Itoa(config.History))
		command.Env = environment
		child, err := lab.StartChild(command)
		if err != nil {
			return err
		}
		f.Processes = append(f.Processes, &lab.Process{Child: child, ID: fmt.Sprintf("n%d", i+1), Address: address})
	}
	for _, p := range f.Processes {
		if err := p.Await(ctx, lab.Answers(p.Address)); err != nil {
			return err
		}
	}
	return nil
}

// Close kills all processes. It may be called more than once.
func (f *Fleet) Close() error {
	for _, p := range f.Processes {
		p.Kill()
	}
	err := f.Redis.Stop()
	f.Redis = nil
	return err
}
