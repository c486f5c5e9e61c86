package auth_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

func newRejoinSigner(t testing.TB, secrets ...[]byte) *auth.RejoinSigner {
	t.Helper()
	signer, err := auth.NewRejoinSigner(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func TestRejoinTokensSurviveTheRoundTripAndNoBitMayChange(t *testing.T) {
	t.Parallel()
	signer := newRejoinSigner(t, auth.NewRejoinSecret())
	rapid.Check(t, func(rt *rapid.T) {
		want := auth.RejoinToken{
			SessionKey: berth.SessionKey(rapid.Int64Range(1, math.MaxInt64).Draw(rt, "key")),
			PeerID:     rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._~-]{0,127}`).Draw(rt, "peer"),
			User:       rapid.StringMatching(`([A-Za-z0-9][A-Za-z0-9._~-]{0,127})?`).Draw(rt, "user"),
			Topics:     topicGrants().Draw(rt, "topics"),
		}
		token, err := signer.Mint(want)
		if err != nil {
			rt.Fatal(err)
		}
		if got, err := signer.Verify(token); err != nil || !cmp.Equal(got, want) || !auth.IsRejoinToken(token) {
			rt.Fatalf("%+v, %v", got, err)
		}
		changed := []byte(token)
		changed[rapid.IntRange(0, len(changed)-1).Draw(rt, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		if _, err := signer.Verify(string(changed)); !errors.Is(err, auth.ErrTokenInvalid) {
			rt.Fatalf("a changed token gives %v", err)
		}
		at := rapid.IntRange(0, len(token)).Draw(rt, "line end")
		if _, err := signer.Verify(token[:at] + "\n" + token[at:]); !errors.Is(err, auth.ErrTokenInvalid) {
			rt.Fatalf("a token with a line end gives %v", err)
		}
	})
}

// TestNoBitOfARejoinTokenMayChange covers the bits that base64 leaves unused at the end of a part.
func TestNoBitOfARejoinTokenMayChange(t *testing.T) {
	t.Parallel()
	signer := newRejoinSigner(t, auth.NewRejoinSecret())
	for _, peer := range []string{"p", "p1", "p12", "p-1"} {
		for _, user := range []string{"", "u"} {
			noByteMayChange(t, signer, auth.RejoinToken{SessionKey: 7, PeerID: peer, User: user})
		}
	}
}

func noByteMayChange(t *testing.T, signer *auth.RejoinSigner, of auth.RejoinToken) {
	t.Helper()
	token, err := signer.Mint(of)
	if err != nil {
		t.Fatal(err)
	}
	for at := range len(token) {
		for other := range 256 {
			changed := []byte(token)
			changed[at] = byte(other)
			if _, err := signer.Verify(string(changed)); (err == nil) != (string(changed) == token) {
				t.Fatalf("byte %d of the token of %s as %q: %v", at, of.PeerID, byte(other), err)
			}
		}
	}
}

func TestRejoinSecretsRotate(t *testing.T) {
	t.Parallel()
	older, newer := auth.NewRejoinSecret(), auth.NewRejoinSecret()
	token, err := newRejoinSigner(t, older).Mint(auth.RejoinToken{SessionKey: 7, PeerID: "p-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newRejoinSigner(t, newer, older).Verify(token); err != nil {
		t.Errorf("the old secret no longer verifies: %v", err)
	}
	if _, err := newRejoinSigner(t, newer).Verify(token); !errors.Is(err, auth.ErrTokenInvalid) {
		t.Errorf("a dropped secret still verifies: %v", err)
	}
	again, err := newRejoinSigner(t, newer, older).Mint(auth.RejoinToken{SessionKey: 7, PeerID: "p-1"})
	if err != nil || again == token {
		t.Errorf("the newest secret does not sign: %v", err)
	}
}

func TestRejoinSignersNeedLongSecretsAndRealPeers(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][][]byte{nil, {}, {[]byte("short")}, {auth.NewRejoinSecret(), nil}} {
		if _, err := auth.NewRejoinSigner(secrets); err == nil {
			t.Errorf("%d secrets are accepted", len(secrets))
		}
	}
	signer := newRejoinSigner(t, auth.NewRejoinSecret())
	for _, token := range []auth.RejoinToken{{SessionKey: 0, PeerID: "p"}, {SessionKey: -1, PeerID: "p"}, {SessionKey: 1}, {SessionKey: 1, PeerID: "a b"}, {SessionKey: 1, PeerID: "p", User: "a b"}, {SessionKey: 1, PeerID: "p", Topics: berth.TopicGrant{Publish: []string{"a b"}}}} {
		if _, err := signer.Mint(token); err == nil {
			t.Errorf("%+v is minted", token)
		}
	}
}

// TestRejoinTokensOfBothFormsVerify has a token as it was minted before peers had users and topics.
func TestRejoinTokensOfBothFormsVerify(t *testing.T) {
	t.Parallel()
	signer := newRejoinSigner(t, make([]byte, auth.RejoinSecretSize))
	const old = "rj1_AAAAAAAAAAdwLTE_0KQHplDCLkXRhWTPTHGc7Xjxy3CGCXF0IFoE7IFkTP0"
	want := auth.RejoinToken{SessionKey: 7, PeerID: "p-1"}
	if got, err := signer.Verify(old); err != nil || !cmp.Equal(got, want) {
		t.Errorf("an old token says %+v, %v", got, err)
	}
	if again, err := signer.Mint(want); err != nil || again != old {
		t.Errorf("minted again it is %s, %v", again, err)
	}
	full, err := signer.Mint(auth.RejoinToken{SessionKey: 7, PeerID: "p-1", User: "u"})
	if err != nil || !strings.HasPrefix(full, "rj2_") {
		t.Fatal(full, err)
	}
	for _, other := range []string{"rj2_" + old[4:], "rj1_" + full[4:]} {
		if got, err := signer.Verify(other); !errors.Is(err, auth.ErrTokenInvalid) {
			t.Errorf("a token passes for one of the other form: %+v, %v", got, err)
		}
	}
}

func TestTheLargestTokensVerify(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("x", berth.MaxIDLength)
	var grant berth.TopicGrant
	for range berth.MaxTopicPatterns {
		grant.Subscribe = append(grant.Subscribe, strings.Repeat("s", berth.MaxTopicGrant/2/berth.MaxTopicPatterns))
		grant.Publish = append(grant.Publish, strings.Repeat("p", berth.MaxTopicGrant/2/berth.MaxTopicPatterns))
	}
	signer := newRejoinSigner(t, auth.NewRejoinSecret())
	rejoin, err := signer.Mint(auth.RejoinToken{SessionKey: math.MaxInt64, PeerID: id, User: id, Topics: grant})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signer.Verify(rejoin); err != nil {
		t.Errorf("a rejoin token of %d bytes: %v", len(rejoin), err)
	}
	f := newFixture(t)
	session := f.mint(t, auth.SessionToken{
		WorkerID: "w-1", SessionID: id, SessionKey: math.MaxInt64, TenantID: id, Generation: math.MaxInt64, PeerID: id, Role: id[:32],
		Kind: berth.KindMedia, Handler: id[:32], User: id, Topics: grant,
	})
	if _, err := f.verifier.Verify(t.Context(), session, f.clock.Now()); err != nil {
		t.Errorf("a session token of %d bytes: %v", len(session), err)
	}
	grant.Publish[0] += "p"
	if _, err := signer.Mint(auth.RejoinToken{SessionKey: 1, PeerID: id, Topics: grant}); err == nil {
		t.Error("more than the most characters of topics are minted")
	}
}

// topicGrants draws grants that tell a list without patterns from no list.
func topicGrants() *rapid.Generator[berth.TopicGrant] {
	list := rapid.SliceOfN(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._~:-]{0,30}[*]?|[*]`), 0, 16)
	return rapid.Custom(func(t *rapid.T) (grant berth.TopicGrant) {
		if rapid.Bool().Draw(t, "subscribes") {
			grant.Subscribe = list.Draw(t, "subscribe")
		}
		if rapid.Bool().Draw(t, "publishes") {
			grant.Publish = list.Draw(t, "publish")
		}
		return grant
	})
}

func FuzzVerifyRejoinToken(f *testing.F) {
	signer := newRejoinSigner(f, auth.NewRejoinSecret())
	good, err := signer.Mint(auth.RejoinToken{SessionKey: 7, PeerID: "p-1"})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{good, "", "rj1_", "rj1__", "rj1_" + strings.Repeat("_", 60), "rj1_AAAAAAAAAAc" + good[20:]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := signer.Verify(text)
		if err == nil && text != good {
			t.Fatalf("%q is accepted as %+v", text, token)
		}
		if err != nil && !errors.Is(err, auth.ErrTokenInvalid) {
			t.Fatal(err)
		}
	})
}
