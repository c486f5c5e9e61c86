package berth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// Defaults of Config.
const (
	DefaultMaxRetries     = 2
	DefaultMaxRetryWait   = 30 * time.Second
	DefaultAttemptTimeout = 15 * time.Second
)

// Config says how to reach the API.
type Config struct {
	// URL is the API's base URL, such as "https://api.example.com"; a path is kept as a prefix. It may be empty in
	// a program that only connects placements it was given, as a device does.
	URL string

	// APIKey authenticates calls: a tenant's key, or an operator's for workers. It may be empty in a program that
	// only connects placements. Never ship one to a device.
	APIKey string

	// Tenant says, for an operator's key, whose sessions Session and EndSession mean. Leave it empty for a tenant's key.
	Tenant string

	// HTTPClient carries calls and WebSocket handshakes. Default: a client of its own with the settings of
	// http.DefaultTransport.
	HTTPClient *http.Client

	// Logger receives what a Conn decides, never tokens or SDP. Default: discard.
	Logger *slog.Logger

	// MaxRetries is how often a call is tried again after its first attempt. Zero means DefaultMaxRetries, a
	// negative number means never.
	MaxRetries int

	// MaxRetryWait is the longest wait between two attempts. A server that asks for more, by Retry-After, ends the
	// call at once with an *Error that carries RetryAfter; exactly MaxRetryWait is waited. Default:
	// DefaultMaxRetryWait.
	MaxRetryWait time.Duration

	// AttemptTimeout bounds one attempt of a call; one that waits for room (CreateSession.Wait) may take that much
	// longer. The API may hold a rejoin for 5 s, so less than 6 s loses answers. Default: DefaultAttemptTimeout.
	AttemptTimeout time.Duration

	// Random draws which part of a backoff's window is waited: a number from 0 to below 1, for many goroutines. Every draw
	// that is not uniform brings clients back together, so it is for tests and for those who measure what happens then.
	// Default: uniform.
	Random func() float64
}

// Client makes calls and connections. Create it with New; it is safe for concurrent use.
type Client struct {
	base           *url.URL // nil: only Connect and Rejoin by URL work
	apiKey         string
	tenant         string
	http           *http.Client
	log            *slog.Logger
	maxRetries     int
	maxRetryWait   time.Duration
	attemptTimeout time.Duration

	random func() float64 // uniform in [0, 1)
	sleep  func(ctx context.Context, d time.Duration) error
}

// New returns a client, or an error that names the field of config that is wrong. It makes no connection.
func New(config Config) (*Client, error) {
	base, err := parseBase(config.URL)
	if err != nil {
		return nil, err
	}
	if config.MaxRetryWait < 0 {
		return nil, errors.New("berth: Config.MaxRetryWait is negative")
	}
	if config.AttemptTimeout < 0 {
		return nil, errors.New("berth: Config.AttemptTimeout is negative")
	}
	c := &Client{
		base:           base,
		apiKey:         config.APIKey,
		tenant:         config.Tenant,
		http:           config.HTTPClient,
		log:            config.Logger,
		maxRetries:     max(0, cmp.Or(config.MaxRetries, DefaultMaxRetries)),
		maxRetryWait:   cmp.Or(config.MaxRetryWait, DefaultMaxRetryWait),
		attemptTimeout: cmp.Or(config.AttemptTimeout, DefaultAttemptTimeout),
		random:         config.Random,
		sleep:          sleep,
	}
	if c.random == nil {
		c.random = rand.Float64
	}
	if c.http == nil {
		c.http = newHTTPClient()
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// CloseIdleConnections closes connections to the API that carry no call. A Conn is not affected.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// newHTTPClient has connections of its own, so that nobody else's CloseIdleConnections is felt here.
func newHTTPClient() *http.Client {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		return &http.Client{Transport: t.Clone()}
	}
	return &http.Client{}
}

func parseBase(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, nil //nolint:nilnil // no URL is a valid configuration and not an error
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("berth: Config.URL is not a URL")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("berth: Config.URL must begin with http:// or https:// and name a host")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("berth: Config.URL must not have credentials, a query or a fragment")
	}
	return u, nil
}

// endpoint returns the URL of a path below the base; segments are escaped.
func (c *Client) endpoint(segments ...string) (string, error) {
	if c.base == nil {
		return "", errors.New("berth: Config.URL is empty: this call needs it")
	}
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return c.base.JoinPath(segments...).String(), nil
}

// sleep waits for d, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	}
}
