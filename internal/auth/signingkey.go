package auth

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

const (
	// SigningKeyLife is how long a key verifies after its creation.
	SigningKeyLife = 30 * 24 * time.Hour
	// SigningKeyOverlap is how long before its end a key gets a successor.
	SigningKeyOverlap = 24 * time.Hour
	// signingKeyLead is how old a key must be to sign, if another can. In it every process re-reads the
	// keys several times, so that nobody meets an unknown kid.
	signingKeyLead = 2 * time.Minute
)

// SigningKey is an Ed25519 key of the deployment. It prints as its kid only.
type SigningKey struct {
	KID       string
	Seed      []byte            // private, 32 bytes (RFC 8032); empty for processes that only verify
	Public    ed25519.PublicKey // 32 bytes
	CreatedAt time.Time         // database clock
}

// NewSigningKey makes a random key. now is the database's.
func NewSigningKey(now time.Time) (SigningKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return SigningKey{}, fmt.Errorf("generate signing key: %w", err)
	}
	return SigningKey{KID: strings.ToLower(rand.Text()[:16]), Seed: private.Seed(), Public: public, CreatedAt: now}, nil
}

// ExpiresAt is when the key stops verifying.
func (k SigningKey) ExpiresAt() time.Time { return k.CreatedAt.Add(SigningKeyLife) }

// String returns the kid, so that printing a key does not print its seed.
func (k SigningKey) String() string { return "signing key " + k.KID }

// Format does the same for every verb.
func (k SigningKey) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, k.String()) }

// LogValue does the same for slog.
func (k SigningKey) LogValue() slog.Value { return slog.StringValue(k.KID) }

// check refuses keys that cannot work. Signing with a public half that does not belong to the seed would
// even give the seed away.
func (k SigningKey) check() error {
	if k.KID == "" || len(k.Public) != ed25519.PublicKeySize {
		return errors.New("signing key has no kid or no public half")
	}
	if len(k.Seed) == 0 {
		return nil
	}
	if len(k.Seed) != ed25519.SeedSize || !k.Public.Equal(ed25519.NewKeyFromSeed(k.Seed).Public()) {
		return errors.New("the halves of a signing key do not belong together")
	}
	return nil
}

// private returns the key that signs, by its definition in crypto/ed25519; deriving it anew for each token
// would double the cost. Call it on checked keys only.
func (k SigningKey) private() ed25519.PrivateKey {
	return ed25519.PrivateKey(slices.Concat(k.Seed, k.Public))
}

// signs reports whether a token minted now ends before the key does.
func (k SigningKey) signs(now time.Time) bool {
	return len(k.Seed) == ed25519.SeedSize && now.Add(SessionTokenLife+leeway).Before(k.ExpiresAt())
}

// CurrentKey returns the key that signs at now: the newest that everybody has had time to read, or else
// the newest. It reports false if there is none.
func CurrentKey(keys []SigningKey, now time.Time) (SigningKey, bool) {
	usable := newestFirst(keys, func(k SigningKey) bool { return k.signs(now) })
	for _, k := range usable {
		if !now.Before(k.CreatedAt.Add(signingKeyLead)) {
			return k, true
		}
	}
	if len(usable) == 0 {
		return SigningKey{}, false
	}
	return usable[0], true
}

// NeedsRotation reports whether a new key is due: no key outlives the overlap.
func NeedsRotation(keys []SigningKey, now time.Time) bool {
	return !slices.ContainsFunc(keys, func(k SigningKey) bool { return now.Before(k.ExpiresAt().Add(-SigningKeyOverlap)) })
}

// PublishedKeys returns the keys that verify at now, newest first. They go to JWKS.
func PublishedKeys(keys []SigningKey, now time.Time) []SigningKey {
	return newestFirst(keys, func(k SigningKey) bool { return now.Before(k.ExpiresAt()) })
}

// newestFirst filters and sorts a copy; the kid breaks ties so that every process agrees.
func newestFirst(keys []SigningKey, keep func(SigningKey) bool) []SigningKey {
	var list []SigningKey
	for _, k := range keys {
		if keep(k) {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b SigningKey) int {
		if order := b.CreatedAt.Compare(a.CreatedAt); order != 0 {
			return order
		}
		return strings.Compare(a.KID, b.KID)
	})
	return list
}

// jwk is the public half of an Ed25519 key (RFC 8037 section 2).
type jwk struct {
	KeyType   string `json:"kty"`
	Curve     string `json:"crv"`
	X         string `json:"x"`
	KID       string `json:"kid"`
	Algorithm string `json:"alg"`
	Use       string `json:"use"`
}

// JWKS renders the public halves as a JSON Web Key Set (RFC 7517 section 5), in the order given.
func JWKS(keys []SigningKey) ([]byte, error) {
	set := struct {
		Keys []jwk `json:"keys"`
	}{Keys: make([]jwk, 0, len(keys))}
	for _, k := range keys {
		set.Keys = append(set.Keys, jwk{
			KeyType: "OKP", Curve: "Ed25519", X: base64.RawURLEncoding.EncodeToString(k.Public), KID: k.KID, Algorithm: "EdDSA", Use: "sig",
		})
	}
	document, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("render jwks: %w", err)
	}
	return document, nil
}
