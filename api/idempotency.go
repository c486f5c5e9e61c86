package api

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/berthdev/berth/internal/berth"
)

// An Idempotency-Key is a string item (RFC 8941 section 3.3.3) by its draft, and bare in most clients. Both forms of one
// key are the same key.
var (
	bareKey   = regexp.MustCompile(`^[!#-~][!-~]*$`)
	quotedKey = regexp.MustCompile(`^"((?:[!#-\[\]-~]|\\["\\])+)"$`)
	escaped   = regexp.MustCompile(`\\(.)`)
)

// idempotencyKey returns the request's Idempotency-Key, "" when it has none.
func (c *checks) idempotencyKey(header http.Header) string {
	values := header.Values("Idempotency-Key")
	if len(values) == 0 {
		return ""
	}
	key := values[0]
	ok := bareKey.MatchString(key)
	if quoted := quotedKey.FindStringSubmatch(key); quoted != nil {
		key, ok = escaped.ReplaceAllString(quoted[1], "$1"), true
	}
	c.require(ok && len(values) == 1 && len(key) <= berth.MaxIdempotencyKey, "Idempotency-Key",
		fmt.Sprintf("must be one key of 1 to %d visible ASCII characters, in double quotes or not", berth.MaxIdempotencyKey))
	return key
}

// bodyHash identifies what a body says, however it is spaced, ordered and escaped. Numbers count as they are written:
// as floats, large ones in metadata would be the same that are not.
func bodyHash(body []byte) ([sha256.Size]byte, error) {
	canonical, err := jsontext.AppendFormat(nil, body, jsontext.ReorderRawObjects(true))
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("canonicalize body: %w", err)
	}
	return sha256.Sum256(canonical), nil
}
