package berth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// maxAnswerBytes bounds what is read of a successful answer: a full page of sessions with metadata fits.
const maxAnswerBytes = 4 << 20

func encodeBody(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("berth: encode request: %w", err)
	}
	return body, nil
}

// attempt sends the call once, after sent attempts before it. override is the answer's Berth-Should-Retry field.
func (c *Client) attempt(ctx context.Context, k call, body []byte, sent int) (override string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout+k.wait)
	defer cancel()
	req, err := newRequest(ctx, k, body, sent)
	if err != nil {
		return "false", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", &transportError{fmt.Errorf("berth: %w", err)}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.Header.Get("Berth-Should-Retry"), readError(resp, time.Now())
	}
	if k.replayed != nil {
		*k.replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	}
	return "", readAnswer(resp, k.answer)
}

func newRequest(ctx context.Context, k call, body []byte, sent int) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, k.url, reader)
	if err != nil {
		return nil, fmt.Errorf("berth: %w", err)
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", "berth-go")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.token != "" {
		req.Header.Set("Authorization", "Bearer "+k.token)
	}
	if k.key != "" {
		req.Header.Set("Idempotency-Key", quoteKey(k.key))
	}
	if k.wait > 0 {
		req.Header.Set("Prefer", "wait="+strconv.FormatInt(int64(k.wait/time.Second), 10))
	}
	if sent > 0 {
		req.Header.Set("X-Berth-Retry-Count", strconv.Itoa(sent))
	}
	return req, nil
}

// readAnswer decodes a success. Members that this version does not know are ignored. A body that breaks off is a
// connection error.
func readAnswer(resp *http.Response, answer any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return &transportError{fmt.Errorf("berth: read answer: %w", err)}
	}
	if answer == nil || len(body) == 0 {
		return nil
	}
	if len(body) > maxAnswerBytes {
		return &Error{Status: resp.StatusCode, Code: CodeTooLarge, Detail: "The answer is too large to read."}
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("berth: decode answer: %w", err)
	}
	return nil
}
