package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berthdev/berth/internal/berth"
)

const (
	rejoinPrefix = "rj1_"
	// rejoinDomain separates these MACs from any other use of the secret.
	rejoinDomain = "berth rejoin token 1\x00"
	// RejoinSecretSize is the least length of a rejoin secret, in bytes.
	RejoinSecretSize = 32

	keySize   = 8  // bytes of a session key
	macLength = 43 // characters of an unpadded base64 SHA-256
)

// rejoinEncoding has one form for each value: Strict refuses stray bits at the end.
var rejoinEncoding = base64.RawURLEncoding.Strict()

// RejoinToken is a peer's right to rejoin a session until that ends. Browsers hold it, so it names one peer
// of one session row and nothing else.
type RejoinToken struct {
	SessionKey berth.SessionKey
	PeerID     string
}

// RejoinSigner mints and checks rejoin tokens. It is immutable; make a new one when the secrets change.
type RejoinSigner struct {
	secrets [][]byte
}

// NewRejoinSecret makes a secret to store.
func NewRejoinSecret() []byte {
	secret := make([]byte, RejoinSecretSize)
	_, _ = rand.Read(secret) // never fails (Go 1.24)
	return secret
}

// NewRejoinSigner takes the secrets of the deployment, newest first: the first signs, all verify.
func NewRejoinSigner(secrets [][]byte) (*RejoinSigner, error) {
	if len(secrets) == 0 {
		return nil, errors.New("rejoin signer: no secret")
	}
	copied := make([][]byte, len(secrets))
	for i, secret := range secrets {
		if len(secret) < RejoinSecretSize {
			return nil, fmt.Errorf("rejoin signer: a secret has %d bytes, want at least %d", len(secret), RejoinSecretSize)
		}
		copied[i] = slices.Clone(secret)
	}
	return &RejoinSigner{secrets: copied}, nil
}

// Mint makes the token of a peer. It is the same each time, until the secret changes.
func (s *RejoinSigner) Mint(t RejoinToken) (string, error) {
	if t.SessionKey <= 0 || !berth.ValidID(t.PeerID) {
		return "", errors.New("rejoin token: session key must be positive and peer an id")
	}
	payload := binary.BigEndian.AppendUint64(make([]byte, 0, keySize+len(t.PeerID)), uint64(t.SessionKey))
	payload = append(payload, t.PeerID...)
	return rejoinPrefix + rejoinEncoding.EncodeToString(payload) + "_" + rejoinEncoding.EncodeToString(mac(s.secrets[0], payload)), nil
}

// Verify returns what a token says, or ErrTokenInvalid. The caller looks up whether the session lives.
func (s *RejoinSigner) Verify(token string) (RejoinToken, error) {
	payload, sum, ok := splitRejoin(token)
	if !ok || !s.signed(payload, sum) {
		return RejoinToken{}, ErrTokenInvalid
	}
	t := RejoinToken{SessionKey: berth.SessionKey(binary.BigEndian.Uint64(payload)), PeerID: string(payload[keySize:])}
	if t.SessionKey <= 0 || !berth.ValidID(t.PeerID) {
		return RejoinToken{}, ErrTokenInvalid
	}
	return t, nil
}

// IsRejoinToken tells a rejoin token from an API key by its prefix.
func IsRejoinToken(credential string) bool { return strings.HasPrefix(credential, rejoinPrefix) }

// signed reports whether one of the secrets made the sum.
func (s *RejoinSigner) signed(payload, sum []byte) bool {
	return slices.ContainsFunc(s.secrets, func(secret []byte) bool { return hmac.Equal(sum, mac(secret, payload)) })
}

// splitRejoin takes a token apart from its end, since "_" also occurs inside the parts.
func splitRejoin(token string) (payload, sum []byte, ok bool) {
	rest, found := strings.CutPrefix(token, rejoinPrefix)
	at := len(rest) - macLength - 1
	if !found || at < 0 || rest[at] != '_' || len(token) > maxToken || strings.ContainsAny(token, "\r\n") {
		return nil, nil, false
	}
	payload, err := rejoinEncoding.DecodeString(rest[:at])
	if err != nil || len(payload) <= keySize {
		return nil, nil, false
	}
	sum, err = rejoinEncoding.DecodeString(rest[at+1:])
	return payload, sum, err == nil
}

// mac is the HMAC-SHA256 of a payload.
func mac(secret, payload []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(rejoinDomain))
	h.Write(payload)
	return h.Sum(nil)
}
