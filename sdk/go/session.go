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

// Strategies for CreateSession.Strategy.
const (
	StrategySpread = "spread" // on the least loaded worker
	StrategyPack   = "pack"   // on the fullest worker with room, so that idle ones appear
)

// CreateSession asks for a session. The zero value is valid: a fresh id, the echo handler, any region.
type CreateSession struct {
	// ID is the session's id, unique among the tenant's live sessions: 1 to 128 of letters, digits and "._~-",
	// beginning with a letter or digit. A live session with this id is answered as it is stored. Default: drawn at
	// random, the same for all attempts of one call.
	ID string

	// Kind is KindMedia, or KindCall: two peers whose signaling workers relay, and no slot. A call has no Handler. Default:
	// KindMedia.
	Kind string

	// Handler is what the worker does with the media, such as "echo" or "play". Default: echo.
	Handler string

	// Region is where the session should be. Default: the tenant's region, else any.
	Region string

	// Spill says whether it may be placed elsewhere when Region is full. Default (nil): yes.
	Spill *bool

	// Slots is how many slots of one worker the session takes, all or none: 1 to 64. Default: 1.
	Slots int

	// Strategy is StrategySpread or StrategyPack. Default: the tenant's, else StrategySpread.
	Strategy string

	// Selector holds the labels that the worker must have, at most 16. Default: any worker.
	Selector map[string]string

	// Wait lets a start that finds no room queue for so long, up to 30 s in whole seconds, instead of being refused at
	// once. It is not tried again after that. Give the context more time than this, and Config.HTTPClient too if it has
	// a Timeout: whoever leaves loses the turn. Default: do not wait.
	Wait time.Duration

	// IdempotencyKey names the call, so that it can be repeated for 24 h, by another process too, and gets the session
	// that it made first: 1 to 255 visible ASCII characters, with the same other members each time. Default: drawn at
	// random, the same for all attempts of one call.
	IdempotencyKey string

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

// Kinds of sessions.
const (
	KindMedia = "media"
	KindCall  = "call"
)

// sessionBody is CreateSession on the wire.
type sessionBody struct {
	ID                 string            `json:"id,omitempty"`
	Kind               string            `json:"kind,omitempty"`
	Peer               *Peer             `json:"peer,omitempty"`
	Region             string            `json:"region,omitempty"`
	Spill              *bool             `json:"spill,omitempty"`
	Slots              int               `json:"slots,omitempty"`
	Strategy           string            `json:"strategy,omitempty"`
	Selector           map[string]string `json:"selector,omitempty"`
	Handler            string            `json:"handler,omitempty"`
	TTLSeconds         int64             `json:"ttl_seconds,omitempty"`
	IdleTimeoutSeconds int64             `json:"idle_timeout_seconds,omitempty"`
	OnWorkerLoss       string            `json:"on_worker_loss,omitempty"`
	Metadata           map[string]any    `json:"metadata,omitempty"`
}

// CreateSession places a session and returns its placement. It is safe to repeat with the same ID or IdempotencyKey.
//
// Errors are *Error: at_capacity with RetryAfter when no worker that fits had the free slots for as long as it waited,
// concurrent_sessions at the tenant's limit, session_start_rate_limited, invalid_argument with the fields at fault,
// conflict, idempotency_mismatch when the key came with other members before, session_ended when the session that the
// key made is over.
func (c *Client) CreateSession(ctx context.Context, session CreateSession) (*Placement, error) {
	k, err := session.call()
	if err != nil {
		return nil, err
	}
	k.token = c.apiKey
	return c.placementCall(ctx, k, "v1", "sessions")
}

func (s CreateSession) call() (call, error) {
	k := call{method: http.MethodPost, key: s.IdempotencyKey, wait: s.Wait}
	if k.key == "" {
		k.key = newID("k")
		if s.ID == "" {
			s.ID = newID("s") // not with a key of the caller's, who may repeat the call: its body must stay the same
		}
	}
	if err := checkKey(k.key); err != nil {
		return call{}, err
	}
	if _, err := wholeSeconds("wait", s.Wait); err != nil {
		return call{}, err
	}
	body, err := s.body()
	k.body = body
	return k, err
}

func (s CreateSession) body() (*sessionBody, error) {
	body := &sessionBody{
		ID: s.ID, Kind: s.Kind, Region: s.Region, Spill: s.Spill, Slots: s.Slots, Strategy: s.Strategy, Selector: s.Selector,
		Handler: s.Handler, OnWorkerLoss: s.OnWorkerLoss, Metadata: s.Metadata,
	}
	if s.ID != "" {
		if err := checkID("id", s.ID); err != nil {
			return nil, err
		}
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
	k := call{method: http.MethodPost, token: c.apiKey, body: peer}
	return c.placementCall(ctx, k, "v1", "sessions", sessionID, "peers")
}

func (c *Client) placementCall(ctx context.Context, k call, path ...string) (*Placement, error) {
	u, err := c.endpoint(path...)
	if err != nil {
		return nil, err
	}
	var p Placement
	k.url, k.answer, k.replayed = u, &p, &p.Replayed
	if err := c.do(ctx, k); err != nil {
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

var keyPattern = regexp.MustCompile(`^[!-~]{1,255}$`)

// checkKey refuses a key that the API would refuse, before it becomes part of a header.
func checkKey(key string) error {
	if !keyPattern.MatchString(key) {
		return invalid("idempotency_key", "use 1 to 255 visible ASCII characters")
	}
	return nil
}

// quoteKey is a key as a string of structured fields, RFC 8941 section 3.3.3.
func quoteKey(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
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
