package berth

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
)

// RejoinRequest asks who owns a session after a peer lost its owner. A Conn rejoins by itself; this is for programs
// with a signaling of their own.
type RejoinRequest struct {
	URL        string // the placement's RejoinURL; default: made of ID and Config.URL
	ID         string // the session's id; needed without URL
	Token      string // the placement's RejoinToken; needed with URL; default: the API key, for the first peer
	Generation int64  // of the placement that was lost
	Lost       bool   // the connection to the owner failed, so an owner that is merely late need not be waited for

	// Peer says who the peer is and which topics it may use, with the API key alone: a Token says it itself. Nil: who it
	// connected as last, and no topics.
	Peer *RejoinPeer
}

// RejoinPeer is what a rejoin by API key says of the peer.
type RejoinPeer struct {
	User   string      `json:"user,omitempty"`   // empty: who it connected as last
	Topics *TopicGrant `json:"topics,omitempty"` // nil: none
}

// rejoinBody is RejoinRequest on the wire.
type rejoinBody struct {
	Generation int64 `json:"generation"`
	Lost       bool  `json:"lost,omitempty"`

	Peer *RejoinPeer `json:"peer,omitempty"`
}

// Rejoin returns the session's current placement, which is a new one if its owner is dead. The API holds the call for
// up to 5 s while the owner is in question. Errors are *Error: session_ended once nothing can bring the session back,
// at_capacity or unavailable with RetryAfter.
func (c *Client) Rejoin(ctx context.Context, rejoin RejoinRequest) (*Placement, error) {
	return c.rejoin(ctx, rejoin, c.maxRetries)
}

func (c *Client) rejoin(ctx context.Context, r RejoinRequest, maxRetries int) (*Placement, error) {
	u, err := c.rejoinURL(r)
	if err != nil {
		return nil, err
	}
	if r.Generation < 1 {
		return nil, invalid("generation", "name the generation of the placement that was lost")
	}
	var p Placement
	err = c.doLimited(ctx, call{
		method: http.MethodPost,
		url:    u,
		token:  cmp.Or(r.Token, c.apiKey),
		body:   rejoinBody{Generation: r.Generation, Lost: r.Lost, Peer: r.Peer},
		answer: &p,
	}, maxRetries)
	if err != nil {
		return nil, err
	}
	return &p, nil
}

func (c *Client) rejoinURL(r RejoinRequest) (string, error) {
	if r.URL != "" {
		u, err := url.Parse(r.URL)
		if r.Token == "" {
			// The API key is for Config.URL alone.
			return "", invalid("token", "use the rejoin_token of the placement together with its rejoin_url")
		}
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return "", invalid("url", "use the rejoin_url of a placement")
		}
		return r.URL, nil
	}
	if err := checkID("id", r.ID); err != nil {
		return "", err
	}
	return c.endpoint("v1", "sessions", r.ID, "rejoin")
}
