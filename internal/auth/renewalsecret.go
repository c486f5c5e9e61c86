package auth

import (
	"crypto/rand"
	"crypto/subtle"
	"regexp"
)

// renewalForm is deliberately wider than what NewRenewalSecret makes, so that the length may change.
var renewalForm = regexp.MustCompile(`^berth_renewal_[A-Z0-9]{40,128}$`)

// NewRenewalSecret makes what one instance of a worker shows to API replicas that are to renew in its name, and the hash
// that the database keeps of it. It is good until the next instance takes the worker's id.
func NewRenewalSecret() (secret string, hashed []byte) {
	secret = "berth_renewal_" + rand.Text() + rand.Text() // 260 random bits need no slow hash
	return secret, hash(secret)
}

// HashRenewalSecret is the stored form of a secret; ErrUnauthenticated if it has not the form of one.
func HashRenewalSecret(secret string) ([]byte, error) {
	if !renewalForm.MatchString(secret) {
		return nil, ErrUnauthenticated
	}
	return hash(secret), nil
}

// SameHash compares hashes in constant time.
func SameHash(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }
