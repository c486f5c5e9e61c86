package api

import (
	"fmt"
	"strconv"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

const reasonPattern = "must be a topic, the beginning of one followed by *, or * alone, of at most 128 characters"

// grant is what only the request that places a peer says of it: its tokens have it from there, and nobody keeps it.
type grant struct {
	user   string
	topics berth.TopicGrant
}

// grant checks what a request says of a peer; prefix is what its fields are called under.
func (c *checks) grant(prefix string, user *wire.ID, topics *wire.TopicGrant) grant {
	said := grant{user: value(user, "")}
	c.require(user == nil || berth.ValidID(said.user), prefix+"user", reasonID)
	if topics == nil {
		return said
	}
	wrong := len(c.fields)
	said.topics = berth.TopicGrant{
		Subscribe: c.patterns(prefix+"topics.subscribe", topics.Subscribe),
		Publish:   c.patterns(prefix+"topics.publish", topics.Publish),
	}
	if wrong == len(c.fields) {
		c.require(said.topics.Valid(), prefix+"topics", fmt.Sprintf("must have at most %d characters in all", berth.MaxTopicGrant))
	}
	return said
}

// regrant is grant for a rejoin: what it does not say must not widen what the peer may do. known is what is kept of it.
func (c *checks) regrant(request *wire.RejoinPeer, known grant) grant {
	if request == nil {
		return known
	}
	said := c.grant("peer.", request.User, request.Topics)
	if request.User == nil {
		said.user = known.user
	}
	if request.Topics == nil {
		said.topics = known.topics
	}
	return said
}

// patterns is nil for a list that is absent, which is not the same as an empty one.
func (c *checks) patterns(field string, list *[]wire.TopicPattern) []string {
	if list == nil {
		return nil
	}
	c.require(len(*list) <= berth.MaxTopicPatterns, field, fmt.Sprintf("must have at most %d patterns", berth.MaxTopicPatterns))
	patterns := append([]string{}, (*list)[:min(len(*list), berth.MaxTopicPatterns)]...)
	for i, pattern := range patterns {
		c.require(berth.ValidTopicPattern(pattern), field+"."+strconv.Itoa(i), reasonPattern)
	}
	return patterns
}
