package auth_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berthdev/berth/internal/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errDown is what a store that is away returns.
var errDown = errors.New("connection refused")

// fakeKeyStore is an API key table.
type fakeKeyStore struct {
	mu    sync.Mutex
	keys  map[string]auth.KeyRecord
	err   error
	asked int
}

func (s *fakeKeyStore) KeyByID(_ context.Context, id string) (auth.KeyRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.err != nil {
		return auth.KeyRecord{}, s.err
	}
	record, ok := s.keys[id]
	if !ok {
		return auth.KeyRecord{}, auth.ErrKeyNotFound
	}
	return record, nil
}

// fakeSigningStore is a signing key table.
type fakeSigningStore struct {
	mu   sync.Mutex
	keys []auth.SigningKey
	err  error
	read int
}

func (s *fakeSigningStore) SigningKeys(context.Context) ([]auth.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	return slices.Clone(s.keys), s.err
}

// set changes the table.
func (s *fakeSigningStore) set(err error, keys ...auth.SigningKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.err = keys, err
}

// reads returns how often the table was read.
func (s *fakeSigningStore) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

// clock is a hand-moved clock.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newSigningKey makes a key or fails the test.
func newSigningKey(t testing.TB, created time.Time) auth.SigningKey {
	t.Helper()
	key, err := auth.NewSigningKey(created)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
