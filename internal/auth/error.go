package auth

import "errors"

var (
	// ErrUnauthenticated says that an API key is missing, malformed, unknown or revoked.
	ErrUnauthenticated = errors.New("api key is missing, unknown or revoked")
	// ErrUnavailable says that the store could not be asked, so nothing is known. Try again.
	ErrUnavailable = errors.New("credential store is unavailable")
	// ErrKeyNotFound is what a [KeyStore] returns for a key that does not exist or is revoked.
	ErrKeyNotFound = errors.New("no live api key with this id")
	// ErrNoSigningKey says that no key may sign now: rotation has not run.
	ErrNoSigningKey = errors.New("no current signing key")

	// ErrTokenInvalid says that a token is malformed, not ours, of another type or not valid yet.
	ErrTokenInvalid = errors.New("token is invalid")
	// ErrTokenExpired says that a token was good and is too old.
	ErrTokenExpired = errors.New("token is expired")
	// ErrTokenAudience says that a token is for another worker.
	ErrTokenAudience = errors.New("token is for another worker")
)
