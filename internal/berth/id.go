package berth

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"regexp"
)

// Limits on identifiers, in characters.
const (
	MaxIDLength     = 128
	MaxRegionLength = 32
	MaxLabelLength  = 63 // of a label's name, and of its value
	MaxWorkerLabels = 16
)

var (
	idPattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

	labelNamePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
	labelValuePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~/+-]*$`)
)

// idAlphabet leaves out the letters and digits that people confuse when they read an id aloud.
const idAlphabet = "23456789abcdefghjkmnpqrstuvwxyz"

// SessionKey identifies one session row for ever, while its (tenant, id) may be used again after it ended.
type SessionKey int64

// Generation is the fencing number of one placement. Zero means that there never was one.
type Generation int64

// Instance is the number of one start of a worker, and the key of its presence lock. Zero means none.
type Instance int32

// ValidID reports whether s may name a tenant, session, peer or worker: an unreserved-character string
// (RFC 3986 section 2.3) of 1 to 128 characters that begins with a letter or digit, so that it needs no escaping
// in a path.
func ValidID(s string) bool { return len(s) <= MaxIDLength && idPattern.MatchString(s) }

// ValidRegion reports whether s may name a region: 1 to 32 lower-case letters, digits and hyphens.
func ValidRegion(s string) bool { return len(s) <= MaxRegionLength && regionPattern.MatchString(s) }

// ValidLabelName reports whether s may name a label of a worker: 1 to 63 of A-Z a-z 0-9 . _ / - that begin with a
// letter or digit.
func ValidLabelName(s string) bool {
	return len(s) <= MaxLabelLength && labelNamePattern.MatchString(s)
}

// ValidLabelValue reports whether s may be the value of a label: 1 to 63 of A-Z a-z 0-9 . _ ~ / + - that begin with a
// letter or digit.
func ValidLabelValue(s string) bool {
	return len(s) <= MaxLabelLength && labelValuePattern.MatchString(s)
}

// NewID returns a fresh random identifier such as "s-7f3kq9v2mw4x": prefix, a hyphen, and twelve characters that
// hold 59 bits.
func NewID(prefix string) string {
	const length = 12
	id := make([]byte, length)
	base := big.NewInt(int64(len(idAlphabet)))
	for i := range id {
		n, err := rand.Int(rand.Reader, base)
		if err != nil {
			// crypto/rand does not fail on any supported system: it ends the process itself (Go 1.24).
			n = big.NewInt(0)
		}
		id[i] = idAlphabet[n.Int64()]
	}
	return fmt.Sprintf("%s-%s", prefix, id)
}
