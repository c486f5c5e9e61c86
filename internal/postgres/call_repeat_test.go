package postgres_test

import (
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

// unnamed is a start of call "c" that names no peer.
func unnamed(role string) berth.Start {
	s := start("c")
	s.Kind, s.Peer = berth.KindCall, berth.Peer{Role: role}
	return s
}

func TestStartOfACallThatIsRepeatedSpeaksForTheSamePeer(t *testing.T) {
	t.Parallel()
	for _, role := range []string{berth.RoleOffer, berth.RoleAnswer} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := newCalls(t)
			first := c.place(unnamed(role))
			for range 3 {
				if again := c.place(unnamed(role)); again.Created || again.Peer != first.Peer || first.Peer.Role != role {
					t.Errorf("got %+v, want %+v", again.Peer, first.Peer)
				}
			}
			second := c.seat("b")
			if second.Peer.Role == role {
				t.Errorf("both are %s", role)
			}
			if again := c.place(unnamed(second.Peer.Role)); again.Peer != second.Peer {
				t.Errorf("got %+v, want %+v", again.Peer, second.Peer)
			}
		})
	}
}

func TestStartOfACallThatAsksForTheOtherRoleAddsThatPeer(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	first := c.place(unnamed(berth.RoleOffer))
	second := c.place(unnamed(berth.RoleAnswer))
	if second.Peer.ID == first.Peer.ID || second.Peer.Role != berth.RoleAnswer {
		t.Errorf("got %+v after %+v", second.Peer, first.Peer)
	}
}

func TestIdempotencyKeyOfACallIsAnsweredWithItsPeer(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	keyed := func(key, role string) berth.Start {
		s := unnamed(role)
		s.ID, s.IDChosen, s.IdempotencyKey = berth.NewID("s"), false, key
		return s
	}
	first := c.place(keyed("k", berth.RoleAnswer))
	for range 3 {
		again := c.place(keyed("k", berth.RoleAnswer))
		if !again.Replayed || again.Session.Key != first.Session.Key || again.Peer != first.Peer {
			t.Errorf("got %+v, want %+v", again, first)
		}
	}
	// Its own name wins over the role that it had asked for, which another may have by now.
	joined := keyed("j", berth.RoleAnswer)
	joined.ID, joined.IDChosen, joined.Peer.ID = first.Session.ID, true, "b"
	second := c.place(joined)
	if again := c.place(joined); again.Peer != second.Peer || second.Peer.Role != berth.RoleOffer {
		t.Errorf("got %+v, want %+v", again.Peer, second.Peer)
	}
}

// One whose key is older than the peers of keys speaks for the peer of its role.
func TestOldIdempotencyKeyOfACallIsAnsweredByRole(t *testing.T) {
	t.Parallel()
	c := newCalls(t)
	s := unnamed(berth.RoleOffer)
	s.IdempotencyKey = "k"
	first := c.place(s)
	c.exec("update berth.idempotency_keys set peer_id = null")
	if again := c.place(s); again.Peer != first.Peer {
		t.Errorf("got %+v, want %+v", again.Peer, first.Peer)
	}
}
