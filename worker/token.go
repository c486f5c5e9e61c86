package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/signaling"
)

// Verifier checks what is signed for this worker. now is the database's time as well as the worker knows it.
type Verifier interface {
	Verify(ctx context.Context, token string, now time.Time) (auth.SessionToken, error)
	VerifyNudge(ctx context.Context, nudge string, instance berth.Instance, now time.Time) error
}

// databaseClock is the database's time, estimated from the answers to renewals: token times are the database's, and
// this host's clock may be wrong or be set. Between answers it runs on the monotonic clock. Before the first it is the
// host's.
type databaseClock struct {
	now   func() time.Time
	known atomic.Pointer[reading]
}

// reading says that the database's clock showed at when this process's showed local.
type reading struct{ at, local time.Time }

func (c *databaseClock) Now() time.Time {
	now := c.now()
	if r := c.known.Load(); r != nil {
		return r.at.Add(now.Sub(r.local))
	}
	return now
}

// learn sets the clock by an answer: at was true at some time between from and to.
func (c *databaseClock) learn(at, from, to time.Time) {
	c.known.Store(&reading{at: at, local: from.Add(to.Sub(from) / 2)})
}

// tokens is the verifier as signaling needs it.
type tokens struct {
	verifier Verifier
	clock    *databaseClock
}

// VerifyToken implements signaling.Tokens.
func (t *tokens) VerifyToken(ctx context.Context, token string) (signaling.Grant, error) {
	s, err := t.verifier.Verify(ctx, token, t.clock.Now())
	if errors.Is(err, auth.ErrUnavailable) {
		return signaling.Grant{}, fmt.Errorf("%w: %w", berth.ErrUnavailable, err)
	}
	if err != nil {
		return signaling.Grant{}, err
	}
	return signaling.Grant{
		Held:      berth.Held{Key: s.SessionKey, Generation: s.Generation},
		SessionID: s.SessionID,
		TenantID:  s.TenantID,
		Peer:      berth.Peer{ID: s.PeerID, Role: s.Role, User: s.User},
		Topics:    s.Topics,
	}, nil
}

// iceServers makes the welcome's ice_servers: credentials name the peer and count from the database's time.
func iceServers(turn auth.TURN, clock *databaseClock) func(signaling.Grant) []signaling.ICEServer {
	return func(grant signaling.Grant) []signaling.ICEServer {
		var list []signaling.ICEServer
		for _, s := range turn.ICEServers(grant.Peer.ID, clock.Now()) {
			list = append(list, signaling.ICEServer(s))
		}
		return list
	}
}
