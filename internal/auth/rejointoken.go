package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// rejoinPlain begins the tokens of peers of whom only the id is said, rejoinFull those of all others.
	rejoinPlain = "rj1_"
	rejoinFull  = "rj2_"
	// rejoinDomains separate the MACs of both forms from each other, and from any other use of the secret.
	rejoinDomainPlain = "berth rejoin token 1\x00"
	rejoinDomainFull  = "berth rejoin token 2\x00"
	// RejoinSecretSize is the least length of a rejoin secret, in bytes.
	RejoinSecretSize = 32

	keySize   = 8  // bytes of a session key
	macLength = 43 // characters of an unpadded base64 SHA-256
)

// rejoinEncoding has one form for each value: Strict refuses stray bits at the end.
var rejoinEncoding = base64.RawURLEncoding.Strict()

// RejoinToken is a peer's right to rejoin a session until that ends. Browsers hold it, so it names one peer
// of one session row, and who that was said to be when it was placed: nobody keeps that elsewhere.
type RejoinToken struct {
	SessionKey berth.SessionKey
	PeerID     string
	User       string           // see SessionToken
	Topics     berth.TopicGrant // see SessionToken
}

// rejoinPayload is what follows the session's key in the full form.
type rejoinPayload struct {
	PeerID string           `json:"peer"`
	User   string           `json:"user,omitempty"`
	Topics berth.TopicGrant `json:"topics,omitzero"`
}

func (t RejoinToken) valid() bool {
	return t.SessionKey > 0 && berth.ValidID(t.PeerID) && (t.User == "" || berth.ValidID(t.User)) && t.Topics.Valid()
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
	if !t.valid() {
		return "", errors.New("rejoin token: session key must be positive, peer and user ids, and topics patterns within their limits")
	}
	payload := binary.BigEndian.AppendUint64(nil, uint64(t.SessionKey))
	if t.User == "" && t.Topics.IsZero() {
		return s.seal(rejoinPlain, append(payload, t.PeerID...)), nil
	}
	said, err := json.Marshal(rejoinPayload{PeerID: t.PeerID, User: t.User, Topics: t.Topics})
	if err != nil {
		return "", fmt.Errorf("encode rejoin token: %w", err)
	}
	return s.seal(rejoinFull, append(payload, said...)), nil
}

// seal writes a payload and its MAC.
func (s *RejoinSigner) seal(prefix string, payload []byte) string {
	return prefix + rejoinEncoding.EncodeToString(payload) + "_" + rejoinEncoding.EncodeToString(mac(s.secrets[0], prefix, payload))
}

// Verify returns what a token says, or ErrTokenInvalid. The caller looks up whether the session lives.
func (s *RejoinSigner) Verify(token string) (RejoinToken, error) {
	prefix, payload, sum, ok := splitRejoin(token)
	if !ok || !s.signed(prefix, payload, sum) {
		return RejoinToken{}, ErrTokenInvalid
	}
	t := RejoinToken{SessionKey: berth.SessionKey(binary.BigEndian.Uint64(payload)), PeerID: string(payload[keySize:])}
	if prefix == rejoinFull {
		var said rejoinPayload
		if json.Unmarshal(payload[keySize:], &said) != nil {
			return RejoinToken{}, ErrTokenInvalid
		}
		t.PeerID, t.User, t.Topics = said.PeerID, said.User, said.Topics
	}
	if !t.valid() {
		return RejoinToken{}, ErrTokenInvalid
	}
	return t, nil
}

// IsRejoinToken tells a rejoin token from an API key by its prefix.
func IsRejoinToken(credential string) bool {
	return strings.HasPrefix(credential, rejoinPlain) || strings.HasPrefix(credential, rejoinFull)
}

// signed reports whether one of the secrets made the sum.
func (s *RejoinSigner) signed(prefix string, payload, sum []byte) bool {
	return slices.ContainsFunc(s.secrets, func(secret []byte) bool { return hmac.Equal(sum, mac(secret, prefix, payload)) })
}

// splitRejoin takes a token apart from its end, since "_" also occurs inside the parts.
func splitRejoin(token string) (prefix string, payload, sum []byte, ok bool) {
	if !IsRejoinToken(token) || len(token) > maxToken || strings.ContainsAny(token, "\r\n") {
		return "", nil, nil, false
	}
	prefix, rest := token[:len(rejoinPlain)], token[len(rejoinPlain):]
	at := len(rest) - macLength - 1
	if at < 0 || rest[at] != '_' {
		return "", nil, nil, false
	}
	payload, err := rejoinEncoding.DecodeString(rest[:at])
	if err != nil || len(payload) <= keySize {
		return "", nil, nil, false
	}
	sum, err = rejoinEncoding.DecodeString(rest[at+1:])
	return prefix, payload, sum, err == nil
}

// mac is the HMAC-SHA256 of a payload in one of the forms.
func mac(secret []byte, prefix string, payload []byte) []byte {
	domain := rejoinDomainPlain
	if prefix == rejoinFull {
		domain = rejoinDomainFull
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(domain))
	h.Write(payload)
	return h.Sum(nil)
}
