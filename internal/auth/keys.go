package auth

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// SigningKeyStore reads the signing keys.
type SigningKeyStore interface {
	// SigningKeys returns all keys that have not been deleted, in any order.
	SigningKeys(ctx context.Context) ([]SigningKey, error)
}

// KeysConfig holds what is optional.
type KeysConfig struct {
	// RefreshInterval is how often Run reads the keys. Default 30 s.
	RefreshInterval time.Duration
	// RetryInterval is the least time between two reads that unknown kids cause. Default 5 s.
	RetryInterval time.Duration
	// ReadTimeout bounds one read. Default 2 s.
	ReadTimeout time.Duration
	// Now measures intervals. Default time.Now.
	Now func() time.Time
}

// errUnknownKey says that no key has the kid of a token. It reaches callers as ErrTokenInvalid.
var errUnknownKey = errors.New("unknown kid")

// Keys is a process's copy of the signing keys. It is read on first use, by Run, and when a kid is
// unknown. If a read fails the old copy stays in use, so that tokens can be checked while the database
// is away.
type Keys struct {
	store  SigningKeyStore
	logger *slog.Logger
	cfg    KeysConfig

	reading chan struct{} // holds one element while a read runs

	mu      sync.Mutex
	keys    []SigningKey
	attempt time.Time // start of the last read; zero if there was none
	err     error     // of the last read
}

// NewKeys returns an empty copy over store.
func NewKeys(store SigningKeyStore, logger *slog.Logger, cfg KeysConfig) *Keys {
	cfg.RefreshInterval = cmp.Or(cfg.RefreshInterval, 30*time.Second)
	cfg.RetryInterval = cmp.Or(cfg.RetryInterval, 5*time.Second)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, 2*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Keys{store: store, logger: logger, cfg: cfg, reading: make(chan struct{}, 1)}
}

// Run keeps the copy fresh until ctx ends, so that deleted keys stop verifying and new ones are known
// before they sign. Failures are logged; the next round tries again.
func (k *Keys) Run(ctx context.Context) {
	ticker := time.NewTicker(k.cfg.RefreshInterval)
	defer ticker.Stop()
	for {
		if err := k.read(ctx); err != nil && ctx.Err() == nil {
			k.logger.WarnContext(ctx, "signing keys not refreshed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// PublicKey returns the key that verifies tokens with this kid at now. The error is ErrUnavailable if the
// keys could not be read, or ErrTokenInvalid if there is no such key.
func (k *Keys) PublicKey(ctx context.Context, kid string, now time.Time) (ed25519.PublicKey, error) {
	key, err := k.find(ctx, func(keys []SigningKey) (SigningKey, bool) {
		i := slices.IndexFunc(keys, func(key SigningKey) bool { return key.KID == kid && now.Before(key.ExpiresAt()) })
		if i < 0 {
			return SigningKey{}, false
		}
		return keys[i], true
	})
	if errors.Is(err, errUnknownKey) {
		return nil, fmt.Errorf("%w: %w", ErrTokenInvalid, err)
	}
	return key.Public, err
}

// Current returns the key that signs at now. The error is ErrUnavailable or ErrNoSigningKey.
func (k *Keys) Current(ctx context.Context, now time.Time) (SigningKey, error) {
	key, err := k.find(ctx, func(keys []SigningKey) (SigningKey, bool) { return CurrentKey(keys, now) })
	if errors.Is(err, errUnknownKey) {
		return SigningKey{}, ErrNoSigningKey
	}
	return key, err
}

// Published returns the keys that verify at now, newest first, for [JWKS].
func (k *Keys) Published(ctx context.Context, now time.Time) ([]SigningKey, error) {
	var published []SigningKey
	_, err := k.find(ctx, func(keys []SigningKey) (SigningKey, bool) {
		published = PublishedKeys(keys, now)
		return SigningKey{}, len(published) > 0
	})
	if errors.Is(err, errUnknownKey) {
		return nil, nil // read, and there are none
	}
	return published, err
}

// find picks a key from the copy, and if there is none reads once more, at most every RetryInterval.
func (k *Keys) find(ctx context.Context, pick func([]SigningKey) (SigningKey, bool)) (SigningKey, error) {
	if key, ok := pick(k.snapshot()); ok {
		return key, nil
	}
	if err := k.readIfDue(ctx); err != nil {
		return SigningKey{}, err
	}
	if key, ok := pick(k.snapshot()); ok {
		return key, nil
	}
	return SigningKey{}, errUnknownKey
}

// snapshot returns the copy, which is replaced as a whole and never changed.
func (k *Keys) snapshot() []SigningKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys
}

// readIfDue reads unless that was tried within RetryInterval; then it returns how the try went. A copy without any
// key is always due: the first key of a new deployment is made after its first workers looked.
func (k *Keys) readIfDue(ctx context.Context) error {
	if err := k.acquire(ctx); err != nil {
		return err
	}
	defer k.release()
	k.mu.Lock()
	recent := !k.attempt.IsZero() && k.cfg.Now().Sub(k.attempt) < k.cfg.RetryInterval
	err, empty := k.err, len(k.keys) == 0
	k.mu.Unlock()
	if recent && (err != nil || !empty) {
		return err
	}
	return k.readLocked(ctx)
}

// read reads now.
func (k *Keys) read(ctx context.Context) error {
	if err := k.acquire(ctx); err != nil {
		return err
	}
	defer k.release()
	return k.readLocked(ctx)
}

// readLocked reads while it holds the turn. It outlives the caller's context, because its result is for
// everybody, but not ReadTimeout.
func (k *Keys) readLocked(ctx context.Context) error {
	started := k.cfg.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.ReadTimeout)
	defer cancel()
	keys, err := k.store.SigningKeys(ctx)
	if err != nil {
		err = fmt.Errorf("read signing keys: %w: %w", ErrUnavailable, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attempt, k.err = started, err
	if err == nil {
		k.keys = k.checked(ctx, keys)
	}
	return err
}

// checked leaves malformed rows out: one must not stop the others.
func (k *Keys) checked(ctx context.Context, keys []SigningKey) []SigningKey {
	good := make([]SigningKey, 0, len(keys))
	for _, key := range keys {
		if err := key.check(); err != nil {
			k.logger.ErrorContext(ctx, "signing key ignored", "kid", key.KID, "err", err)
			continue
		}
		good = append(good, key)
	}
	return good
}

// acquire waits for the turn to read.
func (k *Keys) acquire(ctx context.Context) error {
	select {
	case k.reading <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for signing keys: %w: %w", ErrUnavailable, ctx.Err())
	}
}

// release gives the turn back.
func (k *Keys) release() { <-k.reading }
