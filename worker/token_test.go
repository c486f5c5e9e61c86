package worker

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// oneToken verifies whatever it is shown as one token.
type oneToken struct {
	Verifier

	token auth.SessionToken
}

func (v oneToken) Verify(context.Context, string, time.Time) (auth.SessionToken, error) {
	return v.token, nil
}

func TestGrantHasTheUserAndTheTopicsOfTheToken(t *testing.T) {
	t.Parallel()
	topics := berth.TopicGrant{Subscribe: []string{"a"}, Publish: []string{"b:*"}}
	verifier := oneToken{token: auth.SessionToken{TenantID: "acme", PeerID: "p-1", Role: "offer", User: "ann", Topics: topics}}
	grant, err := (&tokens{verifier: verifier, clock: &databaseClock{now: time.Now}}).VerifyToken(t.Context(), "")
	if err != nil || grant.TenantID != "acme" || grant.Peer != (berth.Peer{ID: "p-1", Role: "offer", User: "ann"}) || !cmp.Equal(grant.Topics, topics) {
		t.Errorf("got %+v, %v", grant, err)
	}
}

func TestDatabaseTimeRunsOnFromTheLastAnswer(t *testing.T) {
	t.Parallel()
	host := time.Now()
	clock := &databaseClock{now: func() time.Time { return host }}
	if got := clock.Now(); !got.Equal(host) {
		t.Fatalf("%v before the first answer, want the host's %v", got, host)
	}
	database := time.Unix(1_000_000, 0)
	clock.learn(database, host, host.Add(2*time.Second))
	host = host.Add(3 * time.Second)
	if got := clock.Now(); !got.Equal(database.Add(2 * time.Second)) {
		t.Fatalf("%v two seconds later, want %v", got, database.Add(2*time.Second))
	}
}
