package auth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/auth"
)

// generate makes a key of a tenant in a store.
func generate(t testing.TB, store *fakeKeyStore, role auth.Role, tenant string) (string, auth.KeyRecord) {
	t.Helper()
	plaintext, record, err := auth.GenerateKey(role)
	if err != nil {
		t.Fatal(err)
	}
	record.TenantID = tenant
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.keys == nil {
		store.keys = map[string]auth.KeyRecord{}
	}
	store.keys[record.ID] = record
	return plaintext, record
}

func TestGeneratedKeysParseAndHideTheirSecret(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, role := range []auth.Role{auth.RoleTenant, auth.RoleOperator} {
		for range 50 {
			plaintext, record, err := auth.GenerateKey(role)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := auth.ParseKey(plaintext)
			if err != nil || parsed.Role != role || parsed.ID != record.ID || string(parsed.Hash) != string(record.Hash) {
				t.Fatalf("a generated key does not parse to its record: %v", err)
			}
			secret, ok := strings.CutPrefix(plaintext, record.Prefix+"_")
			if !ok || len(secret) < 50 || strings.Contains(string(record.Hash), secret) || seen[plaintext] {
				t.Fatalf("prefix %q of a key of %d characters", record.Prefix, len(plaintext))
			}
			seen[plaintext] = true
		}
	}
	if _, _, err := auth.GenerateKey("admin"); err == nil {
		t.Error("an unknown role is accepted")
	}
}

func TestOnlyTheExactKeyAuthenticates(t *testing.T) {
	t.Parallel()
	store := &fakeKeyStore{}
	plaintext, record := generate(t, store, auth.RoleTenant, "acme")
	authenticator := auth.NewAuthenticator(store, auth.AuthenticatorConfig{})
	principal, err := authenticator.Authenticate(t.Context(), plaintext)
	if err != nil || principal != (auth.Principal{Role: auth.RoleTenant, TenantID: "acme", KeyID: record.ID}) {
		t.Fatalf("%+v, %v", principal, err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		changed := []byte(plaintext)
		changed[rapid.IntRange(0, len(changed)-1).Draw(rt, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		if _, err := authenticator.Authenticate(t.Context(), string(changed)); !errors.Is(err, auth.ErrUnauthenticated) {
			rt.Fatalf("a changed key gives %v", err)
		}
	})
	for _, wrong := range []string{"", " ", plaintext + " ", plaintext + "\n", strings.ToUpper(plaintext), strings.Replace(plaintext, "tenant", "operator", 1)} {
		if _, err := authenticator.Authenticate(t.Context(), wrong); !errors.Is(err, auth.ErrUnauthenticated) {
			t.Errorf("%d characters give %v", len(wrong), err)
		}
	}
}

func TestARevokedKeyStopsWorkingWithinTenSeconds(t *testing.T) {
	t.Parallel()
	store, now := &fakeKeyStore{}, newClock()
	plaintext, record := generate(t, store, auth.RoleOperator, "")
	authenticator := auth.NewAuthenticator(store, auth.AuthenticatorConfig{Now: now.Now})
	for range 20 {
		if _, err := authenticator.Authenticate(t.Context(), plaintext); err != nil {
			t.Fatal(err)
		}
	}
	if store.asked != 1 {
		t.Errorf("the store was asked %d times, want once", store.asked)
	}
	delete(store.keys, record.ID)
	for elapsed := time.Duration(0); ; elapsed += time.Second {
		if elapsed > 10*time.Second {
			t.Fatal("the key still works")
		}
		if _, err := authenticator.Authenticate(t.Context(), plaintext); errors.Is(err, auth.ErrUnauthenticated) {
			break
		}
		now.advance(time.Second)
	}
	store.keys[record.ID] = record
	now.advance(5 * time.Second)
	if _, err := authenticator.Authenticate(t.Context(), plaintext); err != nil {
		t.Errorf("a key that appears is unknown after the memory ran out: %v", err)
	}
}

func TestAStoreThatIsAwayIsNotAWrongKey(t *testing.T) {
	t.Parallel()
	store, now := &fakeKeyStore{}, newClock()
	plaintext, _ := generate(t, store, auth.RoleTenant, "acme")
	authenticator := auth.NewAuthenticator(store, auth.AuthenticatorConfig{Now: now.Now})
	store.err = errDown
	_, err := authenticator.Authenticate(t.Context(), plaintext)
	if !errors.Is(err, auth.ErrUnavailable) || !errors.Is(err, errDown) || errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("got %v, want unavailable", err)
	}
	store.err = nil
	if _, err := authenticator.Authenticate(t.Context(), plaintext); err != nil {
		t.Errorf("the failure was remembered: %v", err)
	}
	store.err = errDown
	if _, err := authenticator.Authenticate(t.Context(), plaintext); err != nil {
		t.Errorf("a remembered key needs the store: %v", err)
	}
}

func TestGuessedKeysDoNotPushOutRealOnes(t *testing.T) {
	t.Parallel()
	store := &fakeKeyStore{}
	plaintext, _ := generate(t, store, auth.RoleTenant, "acme")
	authenticator := auth.NewAuthenticator(store, auth.AuthenticatorConfig{Size: 10, Now: newClock().Now})
	if _, err := authenticator.Authenticate(t.Context(), plaintext); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		guess, _, err := auth.GenerateKey(auth.RoleTenant)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := authenticator.Authenticate(t.Context(), guess); !errors.Is(err, auth.ErrUnauthenticated) {
			t.Fatal(err)
		}
	}
	before := store.asked
	if _, err := authenticator.Authenticate(t.Context(), plaintext); err != nil || store.asked != before {
		t.Errorf("the real key was forgotten: %v", err)
	}
}

func TestBearerHeaders(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "BEARER   abc": "abc", "": "", "abc": "", "Bearer": "", "Bearer ": "", "Basic abc": "",
	} {
		if got, ok := auth.ParseBearer(header); got != want || ok != (want != "") {
			t.Errorf("%q gives %q, %t", header, got, ok)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	plaintext, _, err := auth.GenerateKey(auth.RoleTenant)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{plaintext, "berth_tenant__", "berth_operator_a_b_c", strings.Repeat("_", 200), "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := auth.ParseKey(text)
		if err != nil {
			if !errors.Is(err, auth.ErrUnauthenticated) {
				t.Fatal(err)
			}
			return
		}
		if !strings.HasPrefix(text, "berth_"+string(key.Role)+"_"+key.ID+"_") || len(key.Hash) != 32 {
			t.Fatalf("%q parses as %+v", text, key)
		}
	})
}
