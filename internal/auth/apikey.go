package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"regexp"
	"strings"
)

// Role says what a key may do.
type Role string

const (
	// RoleTenant acts for one tenant.
	RoleTenant Role = "tenant"
	// RoleOperator sees and drains workers, of all tenants.
	RoleOperator Role = "operator"
)

// keyForm is deliberately wider than what GenerateKey makes, so that the lengths may change.
var keyForm = regexp.MustCompile(`^berth_(tenant|operator)_([a-z0-9]{8,32})_([A-Za-z0-9]{40,128})$`)

// KeyRecord is what is stored about an API key.
type KeyRecord struct {
	ID       string // public part, names the row
	Role     Role
	TenantID string // empty for operators
	Prefix   string // the key up to its secret, for lists that people read
	Hash     []byte // SHA-256 of the secret; 260 random bits need no slow hash
}

// ParsedKey is what an API key says about itself.
type ParsedKey struct {
	Role Role
	ID   string
	Hash []byte // SHA-256 of the secret
}

// GenerateKey makes a key. The plaintext is shown once and never stored; the record lacks the tenant,
// which the caller sets.
func GenerateKey(role Role) (plaintext string, record KeyRecord, err error) {
	if role != RoleTenant && role != RoleOperator {
		return "", KeyRecord{}, fmt.Errorf("generate api key: role must be %s or %s", RoleTenant, RoleOperator)
	}
	id := strings.ToLower(rand.Text()[:16])
	secret := rand.Text() + rand.Text()
	prefix := "berth_" + string(role) + "_" + id
	return prefix + "_" + secret, KeyRecord{ID: id, Role: role, Prefix: prefix, Hash: hash(secret)}, nil
}

// ParseKey takes a key apart. It returns ErrUnauthenticated if the form is wrong; whether the key exists
// is for an [Authenticator].
func ParseKey(plaintext string) (ParsedKey, error) {
	parts := keyForm.FindStringSubmatch(plaintext)
	if parts == nil {
		return ParsedKey{}, ErrUnauthenticated
	}
	return ParsedKey{Role: Role(parts[1]), ID: parts[2], Hash: hash(parts[3])}, nil
}

// matches compares with a stored record in constant time.
func (k ParsedKey) matches(record KeyRecord) bool {
	return k.Role == record.Role && subtle.ConstantTimeCompare(k.Hash, record.Hash) == 1
}

// hash is the stored form of a secret.
func hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// ParseBearer returns the credential of an Authorization header (RFC 6750 section 2.1). The scheme is
// matched without regard to case.
func ParseBearer(header string) (credential string, ok bool) {
	scheme, credential, found := strings.Cut(header, " ")
	credential = strings.TrimLeft(credential, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || credential == "" {
		return "", false
	}
	return credential, true
}
