package worker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// Config describes a worker. WorkerID, Capacity and the two URLs are required; the zero value of any other field
// means its default.
type Config struct {
	WorkerID     string            // stable over restarts; see berth.ValidID
	Region       string            // empty: none
	Capacity     int               // slots
	Version      string            // of the binary, for people
	Labels       map[string]string // what selectors ask for; see berth.ValidLabelName
	SignalingURL string            // what clients connect to: ws://host:port/rtc
	ControlURL   string            // internal base URL of the control listener
	APIURLs      []string          // of API replicas, or balancers before them, that renew when the database is out of reach; none: no second path

	RenewInterval time.Duration // between renewals; default 2s
	Lease         time.Duration // default 6s
	HoldLimit     time.Duration // of silence until everything is stopped; default 120s
	SilenceLimit  time.Duration // of silence from the database and all of APIURLs, past the lease; default 3s
	CallTimeout   time.Duration // of one call to the database; default 2s
	RegisterRetry time.Duration // while an old instance of the id holds; default 500ms
	DrainDeadline time.Duration // that Stop gives to sessions; default 60s
	RestartSpread time.Duration // window over which clients come back after a stop; default 8s
	HeaderTimeout time.Duration // for the header of an HTTP request; default 5s

	Signaling signaling.Config // its Awake and ICEServers are set by the worker
	TURN      auth.TURN        // what clients are told of STUN and TURN servers; zero: none

	// Now is the clock; nil is time.Now. Tests make holes in it.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	c.RenewInterval = cmp.Or(c.RenewInterval, 2*time.Second)
	c.Lease = cmp.Or(c.Lease, 6*time.Second)
	c.HoldLimit = cmp.Or(c.HoldLimit, 120*time.Second)
	c.SilenceLimit = cmp.Or(c.SilenceLimit, 3*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 2*time.Second)
	c.RegisterRetry = cmp.Or(c.RegisterRetry, 500*time.Millisecond)
	c.DrainDeadline = cmp.Or(c.DrainDeadline, time.Minute)
	c.RestartSpread = cmp.Or(c.RestartSpread, 8*time.Second)
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	switch {
	case !berth.ValidID(c.WorkerID):
		return errors.New("worker id is not valid: use 1 to 128 of A-Z a-z 0-9 . _ ~ -, starting with a letter or digit")
	case c.Region != "" && !berth.ValidRegion(c.Region):
		return errors.New("region is not valid: use 1 to 32 of a-z 0-9 -, starting with a letter or digit")
	case c.Capacity < 1 || c.Capacity > berth.MaxWorkerSlots:
		return fmt.Errorf("capacity must be 1 to %d slots", berth.MaxWorkerSlots)
	case len(c.Labels) > berth.MaxWorkerLabels || !validLabels(c.Labels):
		return fmt.Errorf("labels are not valid: give at most %d, with names and values of 1 to %d letters, digits or . _ / -",
			berth.MaxWorkerLabels, berth.MaxLabelLength)
	case c.SignalingURL == "" || c.ControlURL == "":
		return errors.New("signaling url and control url are required")
	case slices.ContainsFunc(c.APIURLs, func(text string) bool { return !isHTTP(text) }):
		return errors.New("an api url is not valid: give http or https URLs")
	case 2*c.RenewInterval >= c.Lease:
		return errors.New("renew interval must be less than half the lease, so that one renewal may fail")
	}
	return nil
}

func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func validLabels(labels map[string]string) bool {
	for name, value := range labels {
		if !berth.ValidLabelName(name) || !berth.ValidLabelValue(value) {
			return false
		}
	}
	return true
}

// Deps are the parts that a worker needs. All are required.
type Deps struct {
	Registry Registry
	Verifier Verifier
	Media    signaling.Media  // see NewMedia
	Topics   signaling.Topics // closed by the caller after the worker has stopped

	SignalingListener net.Listener // the worker closes both
	ControlListener   net.Listener

	Logger  *slog.Logger
	Metrics *prometheus.Registry // served at /metrics of the control listener
}

func (d Deps) validate() error {
	if d.Registry == nil || d.Verifier == nil || d.Media == nil || d.Topics == nil || d.Logger == nil || d.Metrics == nil {
		return errors.New("registry, verifier, media, topics, logger and metrics are required")
	}
	if d.SignalingListener == nil || d.ControlListener == nil {
		return errors.New("both listeners are required")
	}
	return nil
}
