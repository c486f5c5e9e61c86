package telemetry

import (
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
)

// redacted stands for a value that must not be logged.
const redacted = "[redacted]"

// redact is the ReplaceAttr of every logger: it hides values by key, by the groups around them, and
// by type, and gives durations their unit.
func redact(groups []string, attr slog.Attr) slog.Attr {
	if isSecretKey(attr.Key) || slices.ContainsFunc(groups, isSecretKey) {
		return slog.String(attr.Key, redacted)
	}
	switch value := attr.Value.Any().(type) {
	case http.Header, *http.Request, *http.Response, http.Cookie, *http.Cookie, []*http.Cookie:
		return slog.String(attr.Key, redacted)
	case *url.URL:
		return slog.String(attr.Key, withoutSecrets(value))
	case time.Duration:
		return slog.String(attr.Key, value.String()) // JSON would show a bare number of nanoseconds
	default:
		return attr
	}
}

// withoutSecrets drops the parts of a URL that may hold a password or a token.
func withoutSecrets(u *url.URL) string {
	if u == nil {
		return ""
	}
	short := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return short.String()
}

// isSecretKey reports whether one of the words of a key is on the deny list. Words are split at "_",
// "-", "." and at capitals, and may be plural: session_token, Set-Cookie, turnCredentials.
func isSecretKey(key string) bool {
	words := "_" + snake(key) + "_"
	for _, word := range []string{
		"authorization", "cookie", "credential", "token", "sdp", "password", "passwd", "api_key", "secret", "jwt", "private_key", "database_url",
	} {
		if strings.Contains(words, "_"+word+"_") || strings.Contains(words, "_"+word+"s_") {
			return true
		}
	}
	return false
}

// snake turns a key into lower-case words with "_" between them.
func snake(key string) string {
	var words strings.Builder
	lower := false // whether the last letter was lower case, so that a capital starts a word
	for _, c := range key {
		switch {
		case c == '-' || c == '.' || c == ' ':
			words.WriteByte('_')
			lower = false
		default:
			if unicode.IsUpper(c) && lower {
				words.WriteByte('_')
			}
			words.WriteRune(unicode.ToLower(c))
			lower = unicode.IsLower(c)
		}
	}
	return words.String()
}
