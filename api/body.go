package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// maxBody is the most that a request body may hold, in bytes.
const maxBody = 64 << 10

// restTimeout is how long an answered sender may take for the rest of a body that nobody reads.
const restTimeout = time.Second

// fieldBody names the body as a whole in errors.
const fieldBody = "body"

// readBody returns the body of a request, at most maxBody bytes of application/json that arrived within timeout.
// An absent body is empty.
func readBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) ([]byte, error) {
	return readBodyUpTo(w, r, maxBody, timeout)
}

// readBodyUpTo is readBody for a call that takes more.
func readBodyUpTo(w http.ResponseWriter, r *http.Request, most int64, timeout time.Duration) ([]byte, error) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if !isJSON(r.Header) {
		return nil, berth.Refuse(berth.CodeUnsupportedMedia, "Send the body as Content-Type: application/json, in UTF-8, without a Content-Encoding.")
	}
	if r.ContentLength > most {
		return nil, errTooLarge(most)
	}
	// The deadline is the sender's alone: it must not end a request that is being worked on. A writer without
	// deadlines, as in tests, has no slow sender either.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(timeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return nil, bodyError(w, r, err)
	}
	_ = connection.SetReadDeadline(time.Time{})
	return body, nil
}

// endBody bounds the wait for what a request did not read of its body. net/http reads a rest of up to 256 KiB, so that
// the answer is not lost to a reset and the connection can be kept, but it would wait for that as long as the sender
// likes: one that asked for 100 Continue and got an answer instead never sends it.
func endBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &watchedBody{ReadCloser: r.Body}
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = body
			defer func() {
				if !body.ended {
					_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTimeout)) // a test's writer has none
				}
			}()
		}
		next.ServeHTTP(w, r)
	})
}

// watchedBody knows whether it was read to its end.
type watchedBody struct {
	io.ReadCloser

	ended bool
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

func errTooLarge(most int64) *berth.Refusal {
	return berth.Refuse(berth.CodeTooLarge, fmt.Sprintf("This request's body is at most %d KiB.", most>>10))
}

// bodyError says why a body could not be read. The connection is of no more use.
func bodyError(w http.ResponseWriter, r *http.Request, err error) error {
	w.Header().Set("Connection", "close")
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return errTooLarge(tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return berth.Invalid(fieldBody, "did not arrive in time")
	case r.Context().Err() != nil:
		return r.Context().Err()
	default:
		return berth.Invalid(fieldBody, "ended before it was complete")
	}
}

// isJSON tells whether the headers announce JSON that can be read as it comes.
func isJSON(header http.Header) bool {
	if coding := header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return false
	}
	media, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || len(header.Values("Content-Type")) > 1 || media != "application/json" {
		return false
	}
	charset := parameters["charset"]
	return charset == "" || strings.EqualFold(charset, "utf-8")
}
