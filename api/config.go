package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/telemetry"
)

// Dependencies are what the API cannot work without.
type Dependencies struct {
	Placer        berth.Placer
	Sessions      Sessions
	Workers       Workers
	Renewals      Renewals
	Events        Events
	Capacity      Capacity
	Users         Users
	Backplane     Backplane
	Database      Database
	Waker         Waker
	Refusals      Refusals
	Keys          Keys
	Signer        Signer
	RejoinTokens  RejoinTokens
	SessionTokens SessionTokens
	SigningKeys   SigningKeys
	Log           *slog.Logger
}

// Config is what is optional. The zero value serves 127.0.0.1 on a free port.
type Config struct {
	// Listen is the address to listen on. Default 127.0.0.1:0.
	Listen string
	// PublicURL is what clients call this API by, without a slash at its end. Default http:// and the bound address.
	PublicURL string
	// AllowedOrigins may rejoin from a browser: exact, as in "https://app.example.com". Default none.
	AllowedOrigins []string
	// TrustedProxies are those whose X-Forwarded-For is believed. Default none: callers behind a proxy count as one.
	TrustedProxies []netip.Prefix
	// Dev adds origins on this machine to AllowedOrigins.
	Dev bool
	// Demo opens the calls of the demo page to browsers on this machine. Default nil: they do not exist.
	Demo *Demo
	// Handlers are the media handlers that a session may name. Default echo and play.
	Handlers []string
	// TURN says which ice_servers clients get. Default none.
	TURN auth.TURN

	// RequestTimeout bounds the work on one request. Default 10 s. A held rejoin may take RejoinHold more, a start what it
	// prefers to wait.
	RequestTimeout time.Duration
	// BodyTimeout bounds how long a sender may take for a body. Default 10 s.
	BodyTimeout time.Duration
	// RejoinHold is how long a rejoin waits while its session's owner is in question. Default berth.RejoinHoldLimit, 5 s.
	RejoinHold time.Duration
	// RejoinRate is how many rejoins per second this process works on. Those above it wait for their turn for RejoinHold, and
	// are refused beyond that. Default 500.
	RejoinRate float64
	// Streams is how many event streams may be open at once. One tenant may have a quarter of them. Default 256.
	Streams int
	// TopicStreams is how many streams of topics may be open at once. One tenant may have a quarter of them. Default 4096.
	TopicStreams int
	// StreamPoll is how often it is looked for new events while streams are open. Default 250 ms.
	StreamPoll time.Duration
	// StreamKeepAlive is the silence after which a stream gets a comment. Default 15 s.
	StreamKeepAlive time.Duration
	// StreamWriteTimeout is how long the client of a stream may take to read what was sent. Default 10 s.
	StreamWriteTimeout time.Duration
	// ShutdownDelay is how long Stop goes on serving with /readyz at 503, so that balancers notice. Default 5 s; negative
	// means none.
	ShutdownDelay time.Duration
	// ShutdownTimeout is how long Stop then waits for running requests. Default 20 s.
	ShutdownTimeout time.Duration

	// Registerer gets the metrics of the API itself. Default nobody.
	Registerer prometheus.Registerer
	// Metrics serves GET /metrics. Default 404.
	Metrics http.Handler
	// HTTPMetrics counts requests. Default none.
	HTTPMetrics *telemetry.HTTPMetrics
	// Web serves GET / and /assets/, and with Demo /demo. Default 404.
	Web http.Handler
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	c.AllowedOrigins = slices.Clone(c.AllowedOrigins)
	if len(c.Handlers) == 0 {
		c.Handlers = []string{berth.DefaultHandler, "play"}
	}
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 10*time.Second)
	c.RejoinHold = cmp.Or(c.RejoinHold, berth.RejoinHoldLimit)
	c.RejoinRate = cmp.Or(c.RejoinRate, 500)
	c.Streams = cmp.Or(c.Streams, 256)
	c.TopicStreams = cmp.Or(c.TopicStreams, 4096)
	c.StreamPoll = cmp.Or(c.StreamPoll, 250*time.Millisecond)
	c.StreamKeepAlive = cmp.Or(c.StreamKeepAlive, 15*time.Second)
	c.StreamWriteTimeout = cmp.Or(c.StreamWriteTimeout, 10*time.Second)
	c.ShutdownDelay = max(0, cmp.Or(c.ShutdownDelay, 5*time.Second))
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 20*time.Second)
	return c
}

func (c Config) validate() error {
	if c.PublicURL != "" {
		if u, err := url.Parse(c.PublicURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return errors.New("api: PublicURL must be an http or https URL")
		}
	}
	if !slices.Contains(c.Handlers, berth.DefaultHandler) {
		return fmt.Errorf("api: Handlers must include %s, which sessions get that name none", berth.DefaultHandler)
	}
	if c.Demo != nil && (!c.Dev || c.Demo.TenantID == "" || c.Demo.Killer == nil) {
		return errors.New("api: Demo needs Dev, a tenant and a Killer")
	}
	return nil
}

func (d Dependencies) validate() error {
	required := []any{
		d.Placer, d.Sessions, d.Workers, d.Renewals, d.Events, d.Capacity, d.Users, d.Backplane, d.Database, d.Waker, d.Refusals,
		d.Keys, d.Signer, d.RejoinTokens, d.SessionTokens, d.SigningKeys,
	}
	if slices.Contains(required, nil) || d.Log == nil {
		return errors.New("api: every dependency is required")
	}
	return nil
}
