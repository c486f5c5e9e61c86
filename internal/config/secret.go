package config

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// redacted stands for a secret wherever one is printed.
const redacted = "[redacted]"

// Secret is a string that no formatter prints. The text is behind a pointer so that even a
// secret in an unexported field, where fmt calls no methods, shows an address only.
// The zero Secret is "not set".
type Secret struct {
	text *string
}

// NewSecret wraps text; an empty text gives the zero Secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text. Call it only where the secret is used.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet reports whether there is a secret.
func (s Secret) IsSet() bool { return s.text != nil }

// Equal compares in constant time for texts of one length.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns "[redacted]", or nothing if not set.
func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return redacted
}

// GoString does the same for %#v.
func (s Secret) GoString() string { return s.String() }

// Format does the same for every verb, also %x and %d.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText does the same for JSON and other encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue does the same for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// UnmarshalText sets the secret.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

// Secrets is a short list of secrets, newest first, written with commas between them.
type Secrets []Secret

// UnmarshalText splits at commas.
func (s *Secrets) UnmarshalText(text []byte) error {
	var list Secrets
	for item := range strings.SplitSeq(string(text), ",") {
		if item == "" {
			return errors.New("empty item")
		}
		list = append(list, NewSecret(item))
	}
	*s = list
	return nil
}

// Reveal returns the texts.
func (s Secrets) Reveal() []string {
	texts := make([]string, len(s))
	for i, secret := range s {
		texts[i] = secret.Reveal()
	}
	return texts
}
