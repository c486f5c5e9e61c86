package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuer = "berth"
	// leeway is how far the clocks of API and worker may differ.
	leeway = 5 * time.Second
	// maxToken bounds what is parsed, in bytes. Ids of 128 characters give tokens of about 1.4 kB, all the topics that may be
	// named 3 kB more.
	maxToken = 5120
	// anyAudience is no worker's id.
	anyAudience = "*"
)

// registered holds the fields that every JWT of Berth has (RFC 7519 section 4.1). The audience is one
// worker; a list is refused, because the library would accept any of it.
type registered struct {
	Issuer    string           `json:"iss"`
	Audience  string           `json:"aud"`
	IssuedAt  *jwt.NumericDate `json:"iat"`
	NotBefore *jwt.NumericDate `json:"nbf"`
	ExpiresAt *jwt.NumericDate `json:"exp"`
}

// register fills the fields in; NumericDate cuts times to seconds.
func register(audience string, now time.Time, life time.Duration) registered {
	return registered{
		Issuer: issuer, Audience: audience,
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
	}
}

// GetIssuer and the methods below let the library check the fields.
func (r registered) GetIssuer() (string, error) { return r.Issuer, nil }

// GetAudience returns the one audience.
func (r registered) GetAudience() (jwt.ClaimStrings, error) {
	return jwt.ClaimStrings{r.Audience}, nil
}

// GetSubject returns nothing: no check needs it.
func (r registered) GetSubject() (string, error) { return "", nil }

// GetIssuedAt returns when the token was minted.
func (r registered) GetIssuedAt() (*jwt.NumericDate, error) { return r.IssuedAt, nil }

// GetNotBefore returns when the token begins to be good.
func (r registered) GetNotBefore() (*jwt.NumericDate, error) { return r.NotBefore, nil }

// GetExpirationTime returns when the token ends.
func (r registered) GetExpirationTime() (*jwt.NumericDate, error) { return r.ExpiresAt, nil }

// sign mints a token of the type (RFC 8725 section 3.11) with the current key.
func sign(ctx context.Context, keys *Keys, typ string, payload jwt.Claims, now time.Time) (string, error) {
	key, err := keys.Current(ctx, now)
	if err != nil {
		return "", err
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, payload)
	token.Header["kid"], token.Header["typ"] = key.KID, typ
	signed, err := token.SignedString(key.private())
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}

// verify checks form, type, signature, issuer, audience unless that is anyAudience, and times, and fills payload.
func verify(ctx context.Context, keys *Keys, typ, audience, token string, payload jwt.Claims, now time.Time) error {
	if len(token) > maxToken || strings.ContainsFunc(token, notInToken) {
		return ErrTokenInvalid
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(issuer),
		jwt.WithExpirationRequired(), jwt.WithNotBeforeRequired(), jwt.WithStrictDecoding(), jwt.WithLeeway(leeway),
		jwt.WithTimeFunc(func() time.Time { return now }),
	}
	if audience != anyAudience {
		options = append(options, jwt.WithAudience(audience))
	}
	parser := jwt.NewParser(options...)
	_, err := parser.ParseWithClaims(token, payload, func(t *jwt.Token) (any, error) {
		kid, isText := t.Header["kid"].(string)
		if !isText || t.Header["typ"] != typ {
			return nil, ErrTokenInvalid
		}
		return keys.PublicKey(ctx, kid, now)
	})
	return verdict(err)
}

// notInToken finds what the base64 decoder would skip (line ends) or refuse.
func notInToken(c rune) bool {
	return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
}

// verdict maps the library's errors to ours. Their texts are dropped, since they may quote the token; only
// an error of our own store is kept. The library looks at audience and times after the signature.
func verdict(err error) error {
	foreign := []error{jwt.ErrTokenInvalidIssuer, jwt.ErrTokenNotValidYet, jwt.ErrTokenRequiredClaimMissing}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("verify token: %w", err)
	case !errors.Is(err, jwt.ErrTokenInvalidClaims) || isAny(err, foreign):
		return ErrTokenInvalid
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return ErrTokenAudience
	case errors.Is(err, jwt.ErrTokenExpired):
		return ErrTokenExpired
	default:
		return ErrTokenInvalid
	}
}

// isAny reports whether err is one of the targets.
func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
