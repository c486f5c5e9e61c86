package berth

import (
	"crypto/rand"
	"strings"
)

// Limits on identifiers, in characters.
const (
	MaxIDLength     = 128
	MaxRegionLength = 32
	MaxLabelLength  = 63 // of a label's name, and of its value
	MaxWorkerLabels = 16
)

// Each kind of identifier begins with a letter or digit; these are what may follow. Every start is checked for
// several of them, and a regular expression took ten times as long.
const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"

	idRunes         = lower + upper + digits + "._~-"
	regionRunes     = lower + digits + "-"
	labelNameRunes  = lower + upper + digits + "._/-"
	labelValueRunes = lower + upper + digits + "._~/+-"
)

// made reports whether s is 1 to most of the runes, and begins with one of first.
func made(s string, most int, first, runes string) bool {
	if s == "" || len(s) > most || strings.IndexByte(first, s[0]) < 0 {
		return false
	}
	for i := 1; i < len(s); i++ {
		if strings.IndexByte(runes, s[i]) < 0 {
			return false
		}
	}
	return true
}

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
func ValidID(s string) bool { return made(s, MaxIDLength, lower+upper+digits, idRunes) }

// ValidRegion reports whether s may name a region: 1 to 32 lower-case letters, digits and hyphens.
func ValidRegion(s string) bool { return made(s, MaxRegionLength, lower+digits, regionRunes) }

// ValidLabelName reports whether s may name a label of a worker: 1 to 63 of A-Z a-z 0-9 . _ / - that begin with a
// letter or digit.
func ValidLabelName(s string) bool {
	return made(s, MaxLabelLength, lower+upper+digits, labelNameRunes)
}

// ValidLabelValue reports whether s may be the value of a label: 1 to 63 of A-Z a-z 0-9 . _ ~ / + - that begin with a
// letter or digit.
func ValidLabelValue(s string) bool {
	return made(s, MaxLabelLength, lower+upper+digits, labelValueRunes)
}

// NewID returns a fresh random identifier such as "s-7f3kq9v2mw4x": prefix, a hyphen, and twelve characters that
// hold 59 bits.
func NewID(prefix string) string {
	const length = 12
	var random [2 * length]byte // 31 of 32 values of five bits are used, so one draw is enough but for one in 10^9
	id := make([]byte, 0, len(prefix)+1+length)
	id = append(append(id, prefix...), '-')
	for len(id) < cap(id) {
		// crypto/rand does not fail on any supported system: it ends the process itself (Go 1.24).
		_, _ = rand.Read(random[:])
		for _, b := range random {
			if n := int(b & 31); n < len(idAlphabet) && len(id) < cap(id) {
				id = append(id, idAlphabet[n])
			}
		}
	}
	return string(id)
}
