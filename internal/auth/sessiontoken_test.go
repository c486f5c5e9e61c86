package auth_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// fixture is a deployment with one signing key.
type fixture struct {
	store    *fakeSigningStore
	clock    *clock
	key      auth.SigningKey
	keys     *auth.Keys
	signer   *auth.Signer
	verifier *auth.Verifier
}

func newFixture(t testing.TB) fixture {
	t.Helper()
	now := newClock()
	key := newSigningKey(t, now.Now().Add(-time.Hour))
	store := &fakeSigningStore{keys: []auth.SigningKey{key}}
	keys := auth.NewKeys(store, silent(), auth.KeysConfig{Now: now.Now})
	return fixture{store: store, clock: now, key: key, keys: keys, signer: auth.NewSigner(keys), verifier: auth.NewVerifier(keys, "w-1")}
}

func sample() auth.SessionToken {
	return auth.SessionToken{
		WorkerID: "w-1", SessionID: "s-1", SessionKey: 7, TenantID: "acme", Generation: 48121, PeerID: "p-1", Role: "offer",
		Kind: berth.KindMedia, Handler: "echo",
	}
}

// mint makes a token at the fixture's time or fails the test.
func (f fixture) mint(t testing.TB, token auth.SessionToken) string {
	t.Helper()
	signed, _, err := f.signer.Mint(t.Context(), token, f.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestSessionTokensSurviveTheRoundTrip(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._~-]{0,127}`)
	rapid.Check(t, func(rt *rapid.T) {
		want := auth.SessionToken{
			WorkerID: "w-1", SessionID: id.Draw(rt, "session"), SessionKey: berth.SessionKey(rapid.Int64Min(1).Draw(rt, "key")),
			TenantID: id.Draw(rt, "tenant"), Generation: berth.Generation(rapid.Int64Min(1).Draw(rt, "generation")),
			PeerID: id.Draw(rt, "peer"), Role: rapid.SampledFrom([]string{"", "offer", "answer"}).Draw(rt, "role"),
			Kind: rapid.SampledFrom([]berth.SessionKind{berth.KindMedia, "call"}).Draw(rt, "kind"),
			User: rapid.OneOf(rapid.Just(""), id).Draw(rt, "user"), Topics: topicGrants().Draw(rt, "topics"),
		}
		now := f.clock.Now().Add(time.Duration(rapid.IntRange(0, 999_999_999).Draw(rt, "nanoseconds")))
		signed, expiresAt, err := f.signer.Mint(t.Context(), want, now)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := f.verifier.Verify(t.Context(), signed, now)
		if err != nil {
			rt.Fatal(err)
		}
		want.ExpiresAt = expiresAt
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatal(diff)
		}
		if life := expiresAt.Sub(now); life > auth.SessionTokenLife || life < auth.SessionTokenLife-time.Second {
			rt.Fatalf("life %v", life)
		}
	})
}

func TestNoBitOfASessionTokenMayChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	signed := f.mint(t, sample())
	for at := range len(signed) {
		for bit := range 8 {
			changed := []byte(signed)
			changed[at] ^= 1 << bit
			if _, err := f.verifier.Verify(t.Context(), string(changed), f.clock.Now()); !errors.Is(err, auth.ErrTokenInvalid) {
				t.Fatalf("bit %d of byte %d: %v", bit, at, err)
			}
		}
	}
	for _, changed := range []string{"", signed + "\n", signed[:20] + "\n" + signed[20:], signed + "=", " " + signed, signed + ".", strings.Repeat("a", 1<<16)} {
		if _, err := f.verifier.Verify(t.Context(), changed, f.clock.Now()); !errors.Is(err, auth.ErrTokenInvalid) {
			t.Errorf("%d characters: %v", len(changed), err)
		}
	}
}

func TestSessionTokensHaveTheirTimeAndTheirWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	signed, minted := f.mint(t, sample()), f.clock.Now()
	for _, c := range []struct {
		after time.Duration
		want  error
	}{
		{-6 * time.Second, auth.ErrTokenInvalid},
		{-4 * time.Second, nil},
		{0, nil},
		{auth.SessionTokenLife + 4*time.Second, nil},
		{auth.SessionTokenLife + 6*time.Second, auth.ErrTokenExpired},
		{25 * 24 * time.Hour, auth.ErrTokenExpired},
	} {
		if _, err := f.verifier.Verify(t.Context(), signed, minted.Add(c.after)); !errors.Is(err, c.want) {
			t.Errorf("%v after: %v, want %v", c.after, err, c.want)
		}
	}
	other := auth.NewVerifier(f.keys, "w-2")
	if _, err := other.Verify(t.Context(), signed, minted); !errors.Is(err, auth.ErrTokenAudience) {
		t.Errorf("another worker: %v", err)
	}
	if _, err := other.Verify(t.Context(), signed, minted.Add(time.Hour)); !errors.Is(err, auth.ErrTokenAudience) {
		t.Errorf("another worker, late: %v", err)
	}
}

func TestSessionTokensAreReadWhicheverWorkerTheyAreFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reader, now := auth.NewSessionTokens(f.keys), f.clock.Now()
	for _, worker := range []string{"w-1", "w-2"} {
		token := sample()
		token.WorkerID = worker
		signed := f.mint(t, token)
		if got, err := reader.Verify(t.Context(), signed, now); err != nil || got.WorkerID != worker || got.PeerID != token.PeerID {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, err := reader.Verify(t.Context(), signed, now.Add(time.Hour)); !errors.Is(err, auth.ErrTokenExpired) {
			t.Errorf("late: %v", err)
		}
	}
	nudge, err := f.signer.SignNudge(t.Context(), "w-1", 5, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Verify(t.Context(), nudge, now); !errors.Is(err, auth.ErrTokenInvalid) {
		t.Errorf("a nudge passes: %v", err)
	}
}

// TestForgedTokensAreRefused signs with the right key what Berth would not: only type, issuer and the rest
// of the content are wrong.
func TestForgedTokensAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := f.clock.Now()
	good := func() (map[string]any, jwt.MapClaims) {
		return map[string]any{"kid": f.key.KID, "typ": "berth-session+jwt"}, jwt.MapClaims{
			"iss": "berth", "aud": "w-1", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Minute).Unix(),
			"sub": "s-1", "skey": 7, "tenant": "acme", "gen": 3, "peer": "p-1",
		}
	}
	type edit func(header map[string]any, payload jwt.MapClaims)
	for what, change := range map[string]edit{
		"nothing":          func(map[string]any, jwt.MapClaims) {},
		"no type":          func(h map[string]any, _ jwt.MapClaims) { delete(h, "typ") },
		"another type":     func(h map[string]any, _ jwt.MapClaims) { h["typ"] = "berth-nudge+jwt" },
		"no kid":           func(h map[string]any, _ jwt.MapClaims) { delete(h, "kid") },
		"a number as kid":  func(h map[string]any, _ jwt.MapClaims) { h["kid"] = 1 },
		"unknown kid":      func(h map[string]any, _ jwt.MapClaims) { h["kid"] = "other" },
		"another issuer":   func(_ map[string]any, p jwt.MapClaims) { p["iss"] = "else" },
		"no expiry":        func(_ map[string]any, p jwt.MapClaims) { delete(p, "exp") },
		"no not-before":    func(_ map[string]any, p jwt.MapClaims) { delete(p, "nbf") },
		"list of audience": func(_ map[string]any, p jwt.MapClaims) { p["aud"] = []string{"w-1", "w-2"} },
		"no session":       func(_ map[string]any, p jwt.MapClaims) { delete(p, "sub") },
		"no generation":    func(_ map[string]any, p jwt.MapClaims) { delete(p, "gen") },
		"text as key":      func(_ map[string]any, p jwt.MapClaims) { p["skey"] = "7" },
		"negative key":     func(_ map[string]any, p jwt.MapClaims) { p["skey"] = -7 },
		"fraction as key":  func(_ map[string]any, p jwt.MapClaims) { p["skey"] = 7.5 },
		"bad peer":         func(_ map[string]any, p jwt.MapClaims) { p["peer"] = "a/b" },
		"bad user":         func(_ map[string]any, p jwt.MapClaims) { p["user"] = "a b" },
		"number as user":   func(_ map[string]any, p jwt.MapClaims) { p["user"] = 7 },
		"bad topic":        func(_ map[string]any, p jwt.MapClaims) { p["topics"] = map[string]any{"publish": []string{"a b"}} },
		"text as topics":   func(_ map[string]any, p jwt.MapClaims) { p["topics"] = "*" },
	} {
		header, payload := good()
		change(header, payload)
		signed, err := signRaw(f.key, header, payload)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := auth.NewSessionTokens(f.keys).Verify(t.Context(), signed, now); (err != nil) != (what != "nothing") {
			t.Errorf("%s, for any worker: %v", what, err)
		}
		_, err = f.verifier.Verify(t.Context(), signed, now)
		if want := what != "nothing"; errors.Is(err, auth.ErrTokenInvalid) != want || (err != nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	unsigned := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"aud": "w-1"})
	unsigned.Header["kid"] = f.key.KID
	none, err := unsigned.SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	symmetric := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"aud": "w-1"})
	symmetric.Header["kid"], symmetric.Header["typ"] = f.key.KID, "berth-session+jwt"
	confused, err := symmetric.SignedString([]byte(f.key.Public))
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []string{none, confused} {
		if _, err := f.verifier.Verify(t.Context(), forged, now); !errors.Is(err, auth.ErrTokenInvalid) {
			t.Errorf("another method: %v", err)
		}
	}
}

// signRaw signs any header and payload with a key.
func signRaw(key auth.SigningKey, header map[string]any, payload jwt.MapClaims) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, payload)
	delete(token.Header, "typ")
	maps.Copy(token.Header, header)
	return token.SignedString(privateKey(key))
}

func TestIncompleteTokensAreNotMinted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for what, change := range map[string]func(*auth.SessionToken){
		"worker":     func(s *auth.SessionToken) { s.WorkerID = "" },
		"session":    func(s *auth.SessionToken) { s.SessionID = "" },
		"tenant":     func(s *auth.SessionToken) { s.TenantID = "a b" },
		"peer":       func(s *auth.SessionToken) { s.PeerID = "" },
		"key":        func(s *auth.SessionToken) { s.SessionKey = 0 },
		"generation": func(s *auth.SessionToken) { s.Generation = 0 },
	} {
		token := sample()
		change(&token)
		if signed, _, err := f.signer.Mint(t.Context(), token, f.clock.Now()); err == nil || signed != "" {
			t.Errorf("a token without %s is minted", what)
		}
	}
}

func TestTheHeaderNamesKeyAndType(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	signed := f.mint(t, sample())
	first, _, _ := strings.Cut(signed, ".")
	raw, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil {
		t.Fatal(err)
	}
	var header map[string]string
	if err := json.Unmarshal(raw, &header); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"alg": "EdDSA", "kid": f.key.KID, "typ": "berth-session+jwt"}, header); diff != "" {
		t.Error(diff)
	}
	largest := sample()
	largest.SessionID, largest.TenantID, largest.PeerID = strings.Repeat("s", 128), strings.Repeat("t", 128), strings.Repeat("p", 128)
	if signed := f.mint(t, largest); len(signed) > 2048 {
		t.Errorf("the largest token has %d characters", len(signed))
	}
}

func TestNudgesAreForOneInstance(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	now := f.clock.Now()
	nudge, err := f.signer.SignNudge(t.Context(), "w-1", 5, now)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, token string, instance berth.Instance, at time.Time, want error) {
		t.Helper()
		if err := f.verifier.VerifyNudge(t.Context(), token, instance, at); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	check("right", nudge, 5, now, nil)
	check("another instance", nudge, 6, now, auth.ErrTokenAudience)
	check("late", nudge, 5, now.Add(auth.NudgeLife+6*time.Second), auth.ErrTokenExpired)
	check("a session token", f.mint(t, sample()), 5, now, auth.ErrTokenInvalid)
	if _, err := f.verifier.Verify(t.Context(), nudge, now); !errors.Is(err, auth.ErrTokenInvalid) {
		t.Errorf("a nudge as session token: %v", err)
	}
	if err := auth.NewVerifier(f.keys, "w-2").VerifyNudge(t.Context(), nudge, 5, now); !errors.Is(err, auth.ErrTokenAudience) {
		t.Errorf("another worker: %v", err)
	}
	if _, err := f.signer.SignNudge(t.Context(), "", 5, now); err == nil {
		t.Error("a nudge to nobody is signed")
	}
}

func FuzzVerifySessionToken(f *testing.F) {
	fix := newFixture(f)
	f.Add(fix.mint(f, sample()))
	for _, seed := range []string{"", "..", "a.b.c", "e30.e30.", "eyJhbGciOiJub25lIn0.e30.", "\xff.\x00.\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := fix.verifier.Verify(t.Context(), text, fix.clock.Now())
		if err == nil && token.SessionKey != sample().SessionKey {
			t.Fatalf("%q is accepted", text)
		}
		if err != nil && !errors.Is(err, auth.ErrTokenInvalid) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

func BenchmarkSessionToken(b *testing.B) {
	f := newFixture(b)
	signed := f.mint(b, sample())
	b.Run("mint", func(b *testing.B) {
		for b.Loop() {
			f.mint(b, sample())
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.verifier.Verify(b.Context(), signed, f.clock.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
