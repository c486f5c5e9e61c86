package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

const maxRegisterBackoff = 5 * time.Second

// register makes this process an instance of its worker. It waits while an old instance holds the id and while the
// database is away, until stop or until ctx is done. Any other error is final.
func (k *keeper) register(ctx context.Context) (*tenure, error) {
	ctx, cancel := k.untilStop(ctx)
	defer cancel()
	for wait := k.config.RegisterRetry; ; wait = min(2*wait, maxRegisterBackoff) {
		t, err := k.tryRegister(ctx)
		switch {
		case err == nil:
			t.publish()
			return t, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("register worker: %w", ctx.Err())
		case errors.Is(err, berth.ErrStale):
			return nil, fmt.Errorf("register worker: %w", ErrReplaced)
		case !mayRepeat(err):
			return nil, fmt.Errorf("register worker: %w", err)
		}
		k.log.WarnContext(ctx, "registration failed", "err", err)
		if !sleep(ctx, rand.N(wait)+wait/2) {
			return nil, fmt.Errorf("register worker: %w", ctx.Err())
		}
	}
}

// untilStop returns a context that is done at stop, too.
func (k *keeper) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-k.stops:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

func mayRepeat(err error) bool {
	return errors.Is(err, berth.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errPresence)
}

// tryRegister takes the presence of a fresh instance before it registers: from then on the database can tell that
// this process lives.
func (k *keeper) tryRegister(ctx context.Context) (_ *tenure, err error) {
	instance, err := call(ctx, k.config.CallTimeout, k.registry.NextInstance)
	if err != nil {
		return nil, fmt.Errorf("draw instance: %w", err)
	}
	presence, err := k.openPresence(ctx, instance)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			k.leavePresence(ctx, presence)
		}
	}()
	secret, hash := auth.NewRenewalSecret()
	from, err := k.introduce(ctx, instance, hash, presence)
	if err != nil {
		return nil, err
	}
	_, err = call(ctx, k.config.CallTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, k.registry.Open(ctx, k.config.WorkerID, instance)
	})
	if err != nil {
		return nil, fmt.Errorf("open worker: %w", err)
	}
	k.log.InfoContext(ctx, "worker registered", "instance", int(instance), "pid", os.Getpid(), "region", k.config.Region,
		"capacity", k.config.Capacity)
	return newTenure(k, instance, secret, presence, from), nil
}

// introduce registers the instance as soon as the old one's presence or lease is gone. It returns the time just
// before the request that was granted.
func (k *keeper) introduce(
	ctx context.Context, instance berth.Instance, renewalHash []byte, presence berth.Presence,
) (time.Time, error) {
	registration := berth.Registration{
		WorkerID: k.config.WorkerID, Instance: instance, Region: k.config.Region, Capacity: k.config.Capacity,
		SignalingURL: k.config.SignalingURL, ControlURL: k.config.ControlURL, Version: k.config.Version,
		Labels: k.config.Labels, Lease: k.config.Lease, RenewalHash: renewalHash,
	}
	for waited := false; ; waited = true {
		from := k.config.Now()
		held, err := call(ctx, k.config.CallTimeout, func(ctx context.Context) (bool, error) {
			return k.registry.Register(ctx, registration)
		})
		if err != nil {
			return from, fmt.Errorf("introduce worker: %w", err)
		}
		if !held {
			return from, nil
		}
		if !waited {
			k.log.InfoContext(ctx, "worker id is held by another instance, waiting", "instance", int(instance))
		}
		select {
		case <-presence.Done():
			return from, errPresence
		case <-ctx.Done():
			return from, ctx.Err()
		case <-time.After(k.config.RegisterRetry/2 + rand.N(k.config.RegisterRetry)):
		}
	}
}

func (k *keeper) openPresence(ctx context.Context, instance berth.Instance) (berth.Presence, error) {
	p, err := call(ctx, 2*k.config.CallTimeout, func(ctx context.Context) (berth.Presence, error) {
		return k.registry.Presence(ctx, instance)
	})
	if err != nil {
		return nil, fmt.Errorf("open presence: %w", err)
	}
	return p, nil
}

// call bounds one call to the registry.
func call[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// sleep reports whether it slept through.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
