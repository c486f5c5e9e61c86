package auth_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/auth"
)

func privateKey(key auth.SigningKey) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(key.Seed) }

func TestAnUnknownKidIsLookedUpAtMostEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	signed := f.mint(t, sample()) // first read
	next := newSigningKey(t, f.clock.Now())
	f.clock.advance(10 * time.Second)
	for range 100 {
		if _, err := f.keys.PublicKey(t.Context(), next.KID, f.clock.Now()); !errors.Is(err, auth.ErrTokenInvalid) {
			t.Fatal(err)
		}
	}
	if got := f.store.reads(); got != 2 {
		t.Errorf("%d reads, want 2: one at first use, one for an unknown kid", got)
	}
	f.store.set(nil, f.key, next)
	f.clock.advance(5 * time.Second)
	if _, err := f.keys.PublicKey(t.Context(), next.KID, f.clock.Now()); err != nil {
		t.Errorf("a new key is unknown after 5 s: %v", err)
	}
	if _, err := f.verifier.Verify(t.Context(), signed, f.clock.Now()); err != nil {
		t.Errorf("the old key is gone: %v", err)
	}
}

func TestTheFirstKeyIsKnownAtOnceToAWorkerThatLookedBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.store.set(nil)
	if _, err := f.keys.PublicKey(t.Context(), f.key.KID, f.clock.Now()); !errors.Is(err, auth.ErrTokenInvalid) {
		t.Fatalf("a key of an empty store: %v", err)
	}
	f.store.set(nil, f.key)
	if _, err := f.keys.PublicKey(t.Context(), f.key.KID, f.clock.Now()); err != nil {
		t.Errorf("the first key is unknown right after it was made: %v", err)
	}
}

func TestConcurrentFirstUsesReadOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if _, err := f.keys.Current(t.Context(), f.clock.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := f.store.reads(); got != 1 {
		t.Errorf("%d reads, want 1", got)
	}
}

func TestKnownKeysVerifyWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	signed := f.mint(t, sample())
	f.store.set(errDown)
	f.clock.advance(time.Minute)
	if _, err := f.verifier.Verify(t.Context(), signed, f.clock.Now()); err != nil {
		t.Errorf("a known key needs the database: %v", err)
	}
	stranger := newFixture(t)
	_, err := f.verifier.Verify(t.Context(), stranger.mint(t, sample()), f.clock.Now())
	if !errors.Is(err, auth.ErrUnavailable) || errors.Is(err, auth.ErrTokenInvalid) {
		t.Errorf("an unknown kid while the database is away: %v, want unavailable", err)
	}
	empty := auth.NewKeys(f.store, silent(), auth.KeysConfig{Now: f.clock.Now})
	if _, _, err := auth.NewSigner(empty).Mint(t.Context(), sample(), f.clock.Now()); !errors.Is(err, auth.ErrUnavailable) {
		t.Errorf("mint without keys: %v", err)
	}
}

func TestWithoutKeysNothingIsSigned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.store.set(nil)
	if _, _, err := f.signer.Mint(t.Context(), sample(), f.clock.Now()); !errors.Is(err, auth.ErrNoSigningKey) {
		t.Errorf("got %v", err)
	}
	published, err := f.keys.Published(t.Context(), f.clock.Now())
	if err != nil || len(published) != 0 {
		t.Errorf("published %v, %v", published, err)
	}
	public := f.key
	public.Seed = nil
	f.store.set(nil, public)
	f.clock.advance(5 * time.Second)
	if _, _, err := f.signer.Mint(t.Context(), sample(), f.clock.Now()); !errors.Is(err, auth.ErrNoSigningKey) {
		t.Errorf("without the private half: %v", err)
	}
}

func TestAMalformedKeyIsLeftOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mixed := newSigningKey(t, f.clock.Now().Add(-10*time.Minute))
	mixed.Public = f.key.Public
	f.store.set(nil, mixed, auth.SigningKey{KID: "empty"}, f.key)
	key, err := f.keys.Current(t.Context(), f.clock.Now())
	if err != nil || key.KID != f.key.KID {
		t.Errorf("%v, %v", key, err)
	}
}

func TestAKeySignsAndVerifiesForItsTimeOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	end := f.key.ExpiresAt()
	for _, c := range []struct {
		at              time.Time
		signs, verifies bool
	}{
		{end.Add(-auth.SessionTokenLife - 6*time.Second), true, true},
		{end.Add(-auth.SessionTokenLife), false, true}, // its last token would outlive it
		{end.Add(-time.Second), false, true},
		{end, false, false},
	} {
		if _, err := f.keys.Current(t.Context(), c.at); (err == nil) != c.signs {
			t.Errorf("%v before its end the key signs: %v", end.Sub(c.at), err)
		}
		if _, err := f.keys.PublicKey(t.Context(), f.key.KID, c.at); (err == nil) != c.verifies {
			t.Errorf("%v before its end the key verifies: %v", end.Sub(c.at), err)
		}
	}
}

func TestRunDropsDeletedKeysAndStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := newSigningKey(t, time.Now().Add(-time.Hour))
		store := &fakeSigningStore{keys: []auth.SigningKey{old}}
		keys := auth.NewKeys(store, silent(), auth.KeysConfig{})
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { keys.Run(ctx) })
		synctest.Wait()
		if _, err := keys.PublicKey(ctx, old.KID, time.Now()); err != nil {
			t.Error(err)
		}
		store.set(errDown)
		<-time.After(31 * time.Second)
		if _, err := keys.PublicKey(ctx, old.KID, time.Now()); err != nil {
			t.Errorf("a failed read dropped the keys: %v", err)
		}
		store.set(nil, newSigningKey(t, time.Now()))
		<-time.After(31 * time.Second)
		if _, err := keys.PublicKey(ctx, old.KID, time.Now()); !errors.Is(err, auth.ErrTokenInvalid) {
			t.Errorf("a deleted key still verifies: %v", err)
		}
		stop()
		group.Wait()
	})
}

// TestRotationNeverLeavesAGap runs the policy for random times between its runs: there is always a key
// that signs, whoever read the keys two minutes ago knows it, and a token's key outlives the token.
func TestRotationNeverLeavesAGap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		now := newClock().Now()
		var keys, seen []auth.SigningKey // all, and those that a slow reader knows
		for range rapid.IntRange(1, 60).Draw(rt, "runs") {
			if auth.NeedsRotation(keys, now) {
				keys = append(keys, newSigningKey(t, now))
			}
			if auth.NeedsRotation(keys, now) {
				rt.Fatal("a new key does not end the need")
			}
			first := len(keys) == 1
			current, ok := auth.CurrentKey(keys, now)
			if !ok {
				rt.Fatal("nothing signs")
			}
			if !first && !containsKey(seen, current) {
				rt.Fatal("a key signs that a slow reader does not know")
			}
			if !containsKey(auth.PublishedKeys(keys, now.Add(auth.SessionTokenLife+5*time.Second)), current) {
				rt.Fatal("a token outlives its key")
			}
			if published := len(auth.PublishedKeys(keys, now)); published > 2 {
				rt.Fatalf("%d keys are published", published)
			}
			now = now.Add(2 * time.Minute)
			seen = auth.PublishedKeys(keys, now)
			now = now.Add(time.Duration(rapid.IntRange(0, 23*60).Draw(rt, "minutes")) * time.Minute)
		}
	})
}

func containsKey(keys []auth.SigningKey, key auth.SigningKey) bool {
	for _, k := range keys {
		if k.KID == key.KID {
			return true
		}
	}
	return false
}

func TestJWKSHoldsThePublicHalvesOnly(t *testing.T) {
	t.Parallel()
	key := newSigningKey(t, newClock().Now())
	document, err := auth.JWKS([]auth.SigningKey{key})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":%q,"kid":%q,"alg":"EdDSA","use":"sig"}]}`,
		base64.RawURLEncoding.EncodeToString(key.Public), key.KID)
	if string(document) != want {
		t.Errorf("got %s\nwant %s", document, want)
	}
	if empty, err := auth.JWKS(nil); err != nil || string(empty) != `{"keys":[]}` {
		t.Errorf("no keys: %s, %v", empty, err)
	}
}

func TestASigningKeyPrintsItsKidOnly(t *testing.T) {
	t.Parallel()
	key := newSigningKey(t, newClock().Now())
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).InfoContext(t.Context(), "test", "key", key)
	out := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		out += fmt.Sprintf(verb, key) + fmt.Sprintf(verb, []auth.SigningKey{key}) + fmt.Sprintf(verb, &key)
	}
	seed, err := json.Marshal(key.Seed)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{fmt.Sprintf("%x", key.Seed), fmt.Sprint(key.Seed), strings.Trim(string(seed), `"`)} {
		if strings.Contains(out, form) {
			t.Errorf("the seed is printed: %s", out)
		}
	}
}
