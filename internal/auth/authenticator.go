package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// KeyStore finds API keys.
type KeyStore interface {
	// KeyByID returns the live key with this id, or ErrKeyNotFound if it is unknown or revoked.
	KeyByID(ctx context.Context, id string) (KeyRecord, error)
}

// Principal is who a request comes from.
type Principal struct {
	Role     Role
	TenantID string // empty for operators
	KeyID    string
}

// AuthenticatorConfig holds what is optional.
type AuthenticatorConfig struct {
	// TTL is how long an answer of the store is used, counted from before the question. It bounds how long
	// a revoked key still works and how long a new one may not. Default 5 s.
	TTL time.Duration
	// Size bounds the known keys, and as many unknown ids, that are remembered. When full, an arbitrary one
	// is forgotten. Default 10,000.
	Size int
	// Now measures the age of answers. Default time.Now.
	Now func() time.Time
}

// Authenticator checks API keys against the store, with a short memory for both answers.
type Authenticator struct {
	store KeyStore
	cfg   AuthenticatorConfig

	mu      sync.Mutex
	known   map[string]remembered
	unknown map[string]remembered
}

// remembered is an answer of the store.
type remembered struct {
	record KeyRecord
	until  time.Time
}

// NewAuthenticator returns an authenticator over store.
func NewAuthenticator(store KeyStore, cfg AuthenticatorConfig) *Authenticator {
	cfg.TTL = cmp.Or(cfg.TTL, 5*time.Second)
	cfg.Size = cmp.Or(cfg.Size, 10_000)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Authenticator{store: store, cfg: cfg, known: make(map[string]remembered), unknown: make(map[string]remembered)}
}

// Authenticate returns whose key this is. The error is ErrUnauthenticated if it is nobody's, and
// ErrUnavailable if the store could not say.
func (a *Authenticator) Authenticate(ctx context.Context, plaintext string) (Principal, error) {
	key, err := ParseKey(plaintext)
	if err != nil {
		return Principal{}, err
	}
	record, err := a.find(ctx, key.ID)
	if err != nil {
		return Principal{}, err
	}
	if !key.matches(record) {
		return Principal{}, ErrUnauthenticated
	}
	return Principal{Role: record.Role, TenantID: record.TenantID, KeyID: record.ID}, nil
}

// find returns the record of a live key from memory or from the store.
func (a *Authenticator) find(ctx context.Context, id string) (KeyRecord, error) {
	asked := a.cfg.Now()
	if record, found, isKnown := a.recall(id, asked); found {
		if !isKnown {
			return KeyRecord{}, ErrUnauthenticated
		}
		return record, nil
	}
	record, err := a.store.KeyByID(ctx, id)
	switch {
	case errors.Is(err, ErrKeyNotFound):
		a.remember(id, remembered{until: asked.Add(a.cfg.TTL)}, false)
		return KeyRecord{}, ErrUnauthenticated
	case err != nil:
		return KeyRecord{}, fmt.Errorf("read api key: %w: %w", ErrUnavailable, err)
	default:
		a.remember(id, remembered{record: record, until: asked.Add(a.cfg.TTL)}, true)
		return record, nil
	}
}

// recall looks into both memories.
func (a *Authenticator) recall(id string, now time.Time) (record KeyRecord, found, isKnown bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer, ok := a.known[id]; ok && now.Before(answer.until) {
		return answer.record, true, true
	}
	answer, ok := a.unknown[id]
	return KeyRecord{}, ok && now.Before(answer.until), false
}

// remember stores an answer. Unknown ids have their own bound, so that guessed keys cannot push out real
// ones.
func (a *Authenticator) remember(id string, answer remembered, isKnown bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	into := a.unknown
	if isKnown {
		into = a.known
	}
	if _, replaces := into[id]; !replaces && len(into) >= a.cfg.Size {
		forgetOne(into)
	}
	into[id] = answer
}

// forgetOne makes room: the first in map order, which is arbitrary.
func forgetOne(memory map[string]remembered) {
	for id := range memory {
		delete(memory, id)
		return
	}
}
