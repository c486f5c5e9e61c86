package worker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// ErrReplaced means that another process registered with this worker's id. Two processes share an id by mistake, or
// the other one is this one's successor: either way this one must stop.
var ErrReplaced = errors.New("another process has registered with this worker id")

var (
	errOver     = errors.New("the database declared this instance lost")
	errFinished = errors.New("drained after stop")
	errPresence = errors.New("presence connection lost while registering")
)

// sessions is the hub as the keeper needs it.
type sessions interface {
	Admit(a signaling.Admission)
	Held() []berth.Held
	Serving() []signaling.Served
	Drop(held berth.Held, fate signaling.Fate)
	DropAll(fate signaling.Fate)
	Shed(order berth.ShedOrder) int
}

// keeper keeps the worker registered and its lease current, and does what the database answers.
type keeper struct {
	config   Config
	registry Registry
	replicas []replica // the second path; empty: there is none
	hub      sessions
	awake    *Awake
	clock    *databaseClock
	status   *status
	metrics  *metrics
	log      *slog.Logger

	nudges chan struct{} // holds one: renew now
	stops  chan struct{} // closed: drain, then finish
}

func newKeeper(config Config, registry Registry, log *slog.Logger, m *metrics, awake *Awake) *keeper {
	return &keeper{
		config: config, registry: registry, replicas: httpReplicas(config.APIURLs), awake: awake, status: newStatus(), metrics: m,
		clock:  &databaseClock{now: config.Now},
		log:    log.With("worker_id", config.WorkerID),
		nudges: make(chan struct{}, 1),
		stops:  make(chan struct{}),
	}
}

// nudge has the lease renewed now. It never blocks.
func (k *keeper) nudge() {
	select {
	case k.nudges <- struct{}{}:
	default:
	}
}

// run serves t and its successors. It returns nil once drained after stop, ErrReplaced, the context's error, or the
// error that made registering anew impossible. The last tenure is still present, if it ever was.
func (k *keeper) run(ctx context.Context, t *tenure) (*tenure, error) {
	for {
		err := t.serve(ctx)
		switch {
		case errors.Is(err, errFinished):
			return t, nil
		case errors.Is(err, ErrReplaced):
			k.dropAll("replaced")
			return t, err
		case !errors.Is(err, errOver):
			return t, err
		}
		k.log.WarnContext(ctx, "instance is over", "instance", int(t.instance))
		k.status.store(report{phase: phaseRegistering})
		k.hub.Admit(signaling.AdmitNone)
		k.dropAll("over")
		k.leavePresence(ctx, t.presence)
		if t, err = k.register(ctx); err != nil {
			return nil, err
		}
	}
}

func (k *keeper) dropAll(cause string) {
	k.metrics.dropped.WithLabelValues(cause).Add(float64(len(k.hub.Serving())))
	k.hub.DropAll(signaling.Fate{})
}

// leavePresence gives a lock back, within the time of one call.
func (k *keeper) leavePresence(ctx context.Context, p berth.Presence) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.config.CallTimeout)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		k.log.WarnContext(ctx, "presence not closed", "err", err)
	}
}

// pace is the time to the next renewal, spread so that workers that start together do not renew together.
func (k *keeper) pace() time.Duration {
	return time.Duration(float64(k.config.RenewInterval) * (0.9 + 0.2*rand.Float64()))
}
