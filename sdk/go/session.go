package berth

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Policies for CreateSession.OnWorkerLoss.
const (
	LossRejoin  = "rejoin"  // wait for a peer to rejoin, then place it anew
	LossReplace = "replace" // place it anew at once
	LossEnd     = "end"     // end it
)

// CreateSession asks for a session. The zero value is valid: a fresh id, the echo handler, any region.
type CreateSession struct {
	// ID is the session's id, unique among the tenant's live sessions: 1 to 128 of letters, digits and "._~-",
	// beginning with a letter or digit. A live session with this id is answered as it is stored. Default: drawn at
	// random by the client, the same for all attempts of one call.
	ID string

	// Handler is what the worker does with the media, such as "echo" or "play". Default: echo.
	Handler string

	// Region is where the session should be. Default: the tenant's region, else any.
	Region string

	// Spill says whether it may be placed elsewhere when Region is full. Default (nil): yes.
	Spill *bool

	// TTL ends the session for good, 10 s to 24 h in whole seconds. Default: 1 h.
	TTL time.Duration

	// IdleTimeout ends the session when no peer was connected for so long, 5 s to 1 h in whole seconds.
	// Default: 1 min.
	IdleTimeout time.Duration

	// Peer is the first peer. Default: an id drawn at random by the client, role "offer".
	Peer Peer

	// OnWorkerLoss is LossRejoin, LossReplace or LossEnd. Default: LossRejoin.
	OnWorkerLoss string

	// Metadata is kept with the session: at most 8 KiB as JSON, 32 levels deep.
	Metadata map[string]any
}

// sessionBody is CreateSession on the wire.
type sessionBody struct {
	ID                 string         `json:"id"`
	Peer               *Peer          `json:"peer,omitempty"`
	Region             string         `json:"region,omitempty"`
	Spill              *bool          `json:"spill,omitempty"`
	Handler            string         `json:"handler,omitempty"`
	TTLSeconds         int64          `json:"ttl_seconds,omitempty"`
	IdleTimeoutSeconds int64          `json:"idle_timeout_seconds,omitempty"`
	OnWorkerLoss       string         `json:"on_worker_loss,omitempty"`
	Metadata           map[string]any `json:"metadata,omitempty"`
}

// CreateSession places a session and returns its placement. It is safe to repeat with the same ID.
//
// Errors are *Error: at_capacity with RetryAfter when no slot was free, concurrent_sessions at the tenant's limit,
// session_start_rate_limited, invalid_argument with the fields at fault, conflict.
func (c *Client) CreateSession(ctx context.Context, session CreateSession) (*Placement, error) {
	body, err := session.body()
	if err != nil {
		return nil, err
	}
	return c.placementCall(ctx, body, "v1", "sessions")
}

func (s CreateSession) body() (*sessionBody, error) {
	body := &sessionBody{
		ID: s.ID, Region: s.Region, Spill: s.Spill, Handler: s.Handler,
		OnWorkerLoss: s.OnWorkerLoss, Metadata: s.Metadata,
	}
	if body.ID == "" {
		body.ID = newID("s")
	}
	if err := checkID("id", body.ID); err != nil {
		return nil, err
	}
	// Without an id the API makes one, and answers the session's first peer when the call is repeated.
	if s.Peer != (Peer{}) {
		body.Peer = &s.Peer
	}
	if s.Peer.ID != "" {
		if err := checkID("peer.id", s.Peer.ID); err != nil {
			return nil, err
		}
	}
	var err error
	if body.TTLSeconds, err = wholeSeconds("ttl_seconds", s.TTL); err != nil {
		return nil, err
	}
	body.IdleTimeoutSeconds, err = wholeSeconds("idle_timeout_seconds", s.IdleTimeout)
	return body, err
}

// Session reads a session with its peers: the newest one of that id, live or ended within 24 hours.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	u, err := c.sessionURL(id)
	if err != nil {
		return nil, err
	}
	var s Session
	if err := c.do(ctx, call{method: http.MethodGet, url: u, token: c.apiKey, answer: &s}); err != nil {
		return nil, err
	}
	return &s, nil
}

// sessionURL is one session's, of the tenant that the client's key or Config.Tenant names.
func (c *Client) sessionURL(id string) (string, error) {
	if err := checkID("id", id); err != nil {
		return "", err
	}
	u, err := c.endpoint("v1", "sessions", id)
	if err != nil || c.tenant == "" {
		return u, err
	}
	return u + "?" + url.Values{"tenant": {c.tenant}}.Encode(), nil
}

// SessionFilter selects sessions. The zero value selects all that the key may see.
type SessionFilter struct {
	State    string // assigned, active, awaiting_rejoin or ended
	Worker   string // only those that this worker owns
	Tenant   string // for operators: only this tenant's
	PageSize int    // sessions per request, 1 to 200; default: the API's, 50
}

// Sessions iterates over sessions, newest first, and fetches pages as they are needed. After an error, which is the
// last pair, the iteration ends.
func (c *Client) Sessions(ctx context.Context, filter SessionFilter) iter.Seq2[*Session, error] {
	query := url.Values{}
	set(query, "state", filter.State)
	set(query, "worker", filter.Worker)
	set(query, "tenant", filter.Tenant)
	if filter.PageSize != 0 {
		query.Set("limit", strconv.Itoa(filter.PageSize))
	}
	return pages[Session](ctx, c, query, "v1", "sessions")
}

// EndSession ends a session and gives its slot back. It succeeds for a session that has ended already.
func (c *Client) EndSession(ctx context.Context, id string) error {
	u, err := c.sessionURL(id)
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodDelete, url: u, token: c.apiKey})
}

// AddPeer adds a peer to a session and returns its placement: the same owner, a token of its own. An empty id is drawn
// at random by the client; a peer that exists already gets a fresh token.
func (c *Client) AddPeer(ctx context.Context, sessionID string, peer Peer) (*Placement, error) {
	if err := checkID("id", sessionID); err != nil {
		return nil, err
	}
	if peer.ID == "" {
		peer.ID = newID("p")
	}
	if err := checkID("peer.id", peer.ID); err != nil {
		return nil, err
	}
	return c.placementCall(ctx, peer, "v1", "sessions", sessionID, "peers")
}

func (c *Client) placementCall(ctx context.Context, body any, path ...string) (*Placement, error) {
	u, err := c.endpoint(path...)
	if err != nil {
		return nil, err
	}
	var p Placement
	if err := c.do(ctx, call{method: http.MethodPost, url: u, token: c.apiKey, body: body, answer: &p}); err != nil {
		return nil, err
	}
	return &p, nil
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$`)

// checkID refuses an id that the API would refuse, before it becomes part of a path.
func checkID(field, id string) error {
	if !idPattern.MatchString(id) {
		return invalid(field, "use 1 to 128 letters, digits and ._~- and begin with a letter or digit")
	}
	return nil
}

// newID draws an id with 80 random bits.
func newID(prefix string) string {
	return prefix + "-" + strings.ToLower(rand.Text()[:16])
}

// wholeSeconds converts a duration to the API's unit; zero stays zero, which means the API's default. Ranges are the
// API's to check.
func wholeSeconds(field string, d time.Duration) (int64, error) {
	if d < 0 || d%time.Second != 0 {
		return 0, invalid(field, "use a positive number of whole seconds")
	}
	return int64(d / time.Second), nil
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}
