package api

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

const (
	// maxRenewalBody is the most that a renewal may hold, in bytes: a list of some 25,000 sessions.
	maxRenewalBody = 1 << 20
	// renewWithin bounds the question to the database, so that its absence is known before the worker's patience ends.
	renewWithin = time.Second
	// renewalsAtOnce is how many renewals may wait for the database, and lookUpsAtOnce how many secrets beside them.
	// Together they are few beside its connections.
	renewalsAtOnce = 4
	lookUpsAtOnce  = 2
	// renewalRate and renewalBurst are what one instance may ask per second: a renewal each two seconds, twice when lists
	// differ, and nudges.
	renewalRate  = 4
	renewalBurst = 20
	// maxKnownInstances bounds the memory of secrets. When full, an arbitrary one is forgotten.
	maxKnownInstances = 10_000

	minLease = 500 * time.Millisecond
	maxLease = 5 * time.Minute
)

// Renewals renews workers' leases. Errors that wrap berth.ErrUnavailable say that the database is away.
type Renewals interface {
	// RenewalSecrets returns the hashes by which the last instances of a worker prove themselves.
	RenewalSecrets(ctx context.Context, workerID string) ([]berth.RenewalSecret, error)
	// Renew extends the lease of an instance and says what it should know.
	Renew(ctx context.Context, renewal berth.Renewal) (berth.RenewalAnswer, error)
	// Reconcile returns what an instance serves and should not.
	Reconcile(ctx context.Context, workerID string, instance berth.Instance, held []berth.Held) ([]berth.Dropped, error)
}

// relay renews in the name of workers that do not reach the database themselves. Secrets that were right are remembered,
// since an instance never changes its own; whether the instance still counts is for the database, each time.
type relay struct {
	renewals  Renewals
	strangers *strangers
	turns     turns // of renewals
	lookUps   turns // of secrets that nobody has seen: they must not hold up renewals

	mu    sync.Mutex
	known map[string]known // by the hash of the secret
}

// known is an instance that proved itself.
type known struct {
	workerID string
	instance berth.Instance
	pace     *rate.Limiter
}

func newRelay(renewals Renewals, trusted []netip.Prefix) *relay {
	return &relay{
		renewals: renewals, strangers: newStrangers(trusted),
		turns: make(turns, renewalsAtOnce), lookUps: make(turns, lookUpsAtOnce), known: make(map[string]known),
	}
}

// RenewWorker serves POST /v1/workers/{id}/renewal.
func (s *service) RenewWorker(w http.ResponseWriter, r *http.Request, id wire.WorkerID) {
	caller, err := s.relay.authenticate(r, id)
	if err != nil {
		s.failRenewal(w, r, err)
		return
	}
	renewal, held, err := readRenewal(w, r, s.cfg.BodyTimeout, caller)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer, dropped, err := s.relay.renew(r.Context(), renewal, held)
	if err != nil {
		s.failRenewal(w, r, err)
		return
	}
	s.write(w, r, "application/json", http.StatusOK, wireRenewal(answer, dropped))
}

// failRenewal is fail, but says of the database what a worker in doubt has to know.
func (s *service) failRenewal(w http.ResponseWriter, r *http.Request, err error) {
	if isUnavailable(err) && r.Context().Err() == nil {
		err = unavailable("The database is away.")
	}
	s.fail(w, r, err)
}

// authenticate finds out which instance of the worker calls. Nothing else of the request was looked at before.
func (l *relay) authenticate(r *http.Request, workerID string) (known, error) {
	secret, err := bearer(r)
	if err != nil {
		return known{}, err
	}
	hash, err := auth.HashRenewalSecret(secret)
	if err != nil || !berth.ValidID(workerID) {
		return known{}, auth.ErrUnauthenticated
	}
	caller, ok := l.recall(hash)
	if !ok {
		if !l.strangers.allow(r) {
			return known{}, unavailable("Too many unknown workers ask at once.")
		}
		if caller, err = l.lookUp(r.Context(), workerID, hash); err != nil {
			return known{}, err
		}
	}
	if caller.workerID != workerID {
		return known{}, auth.ErrUnauthenticated
	}
	if !caller.pace.Allow() {
		return known{}, unavailable("This instance renews too often.")
	}
	return caller, nil
}

// recall finds an instance that proved itself before. Its key is a hash of 260 random bits, so that the time which a look
// into the map takes tells nothing of use.
func (l *relay) recall(hash []byte) (known, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	caller, ok := l.known[string(hash)]
	return caller, ok
}

// lookUp asks the database.
func (l *relay) lookUp(ctx context.Context, workerID string, hash []byte) (known, error) {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	release, err := l.lookUps.take(ctx)
	if err != nil {
		return known{}, err
	}
	defer release()
	secrets, err := l.renewals.RenewalSecrets(ctx, workerID)
	if err != nil {
		return known{}, err
	}
	for _, s := range secrets {
		if auth.SameHash(s.Hash, hash) {
			return l.remember(hash, known{workerID, s.Instance, rate.NewLimiter(renewalRate, renewalBurst)}), nil
		}
	}
	return known{}, auth.ErrUnauthenticated
}

// remember returns what is known now: another request of the instance may have been first.
func (l *relay) remember(hash []byte, caller known) known {
	l.mu.Lock()
	defer l.mu.Unlock()
	if earlier, ok := l.known[string(hash)]; ok {
		return earlier
	}
	if len(l.known) >= maxKnownInstances {
		for one := range l.known {
			delete(l.known, one)
			break
		}
	}
	l.known[string(hash)] = caller
	return caller
}

// turns holds one element for each question that the database is asked at the moment.
type turns chan struct{}

// take waits until few enough are asked.
func (t turns) take(ctx context.Context) (release func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// renew asks the database as the worker would.
func (l *relay) renew(
	ctx context.Context, renewal berth.Renewal, held []berth.Held,
) (answer berth.RenewalAnswer, dropped []berth.Dropped, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	release, err := l.turns.take(ctx)
	if err != nil {
		return answer, nil, err
	}
	defer release()
	answer, err = l.renewals.Renew(ctx, renewal)
	if err != nil || held == nil || answer.Matched || answer.Verdict != berth.RenewalYours {
		return answer, nil, err
	}
	dropped, err = l.renewals.Reconcile(ctx, renewal.WorkerID, renewal.Instance, held)
	return answer, dropped, err
}

// readRenewal returns what the body says, and nil held if there is no list in it.
func readRenewal(
	w http.ResponseWriter, r *http.Request, timeout time.Duration, caller known,
) (renewal berth.Renewal, held []berth.Held, err error) {
	body, err := readBodyUpTo(w, r, maxRenewalBody, timeout)
	if err != nil {
		return renewal, nil, err
	}
	request, err := parseBody[wire.RenewalRequest](body)
	if err != nil {
		return renewal, nil, err
	}
	var c checks
	c.require(berth.Instance(request.Instance) == caller.instance, "instance", "must be the one that the secret belongs to")
	c.require(request.Count >= 0, "count", "must not be negative")
	digest, err := strconv.ParseUint(request.Digest, 16, 64)
	c.require(err == nil && len(request.Digest) == 16, "digest", "must be 16 hexadecimal digits")
	lease := time.Duration(request.LeaseMs) * time.Millisecond
	c.require(request.LeaseMs <= int(maxLease/time.Millisecond) && lease >= minLease, "lease_ms", "must be an integer from 500 to 300000")
	if request.Held != nil {
		held = make([]berth.Held, len(*request.Held))
		for i, h := range *request.Held {
			held[i] = berth.Held{Key: berth.SessionKey(h.Key), Generation: berth.Generation(h.Generation)}
		}
		c.require(len(held) == request.Count && berth.Digest(held) == digest, "held", "must be what count and digest say")
	}
	return berth.Renewal{
		WorkerID: caller.workerID, Instance: caller.instance, Count: request.Count, Digest: digest, Lease: lease, Relayed: true,
	}, held, c.err()
}

func wireRenewal(answer berth.RenewalAnswer, dropped []berth.Dropped) wire.Renewal {
	list := make([]wire.DroppedSession, len(dropped))
	for i, d := range dropped {
		list[i] = wire.DroppedSession{
			Key: int64(d.Key), Generation: int64(d.Generation), Ended: d.Ended, Reason: optional(wire.EndedReason(d.Reason)),
		}
	}
	return wire.Renewal{
		Verdict:       wire.RenewalVerdict(answer.Verdict),
		State:         optional(wire.WorkerState(answer.State)),
		DrainDeadline: optionalTime(answer.DrainDeadline),
		Matched:       answer.Matched,
		At:            answer.At.UTC(),
		ExpiresAt:     optionalTime(answer.ExpiresAt),
		Dropped:       list,
	}
}
