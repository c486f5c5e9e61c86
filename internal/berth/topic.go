package berth

import (
	"encoding/json"
	"slices"
	"strings"
)

const (
	// MaxTopicLength is the most characters of a topic's name.
	MaxTopicLength = 128
	// MaxTopicPatterns is the most patterns of one list of a TopicGrant.
	MaxTopicPatterns = 16
	// MaxTopicGrant is the most characters of all patterns of a TopicGrant together: it travels in tokens, and those in a
	// header.
	MaxTopicGrant = 2048
	// MaxDirectData is the most bytes of a direct message's data: it travels with its address.
	MaxDirectData = 60 << 10

	topicRunes = idRunes + ":"
)

// ValidTopic reports whether s may name a tenant's topic: 1 to 128 of A-Z a-z 0-9 . _ ~ : - that begin with a letter or
// digit, so that it needs no escaping in a path.
func ValidTopic(s string) bool { return made(s, MaxTopicLength, lower+upper+digits, topicRunes) }

// ValidTopicPattern reports whether s may stand in a TopicGrant: a topic, the beginning of one followed by *, or * alone.
func ValidTopicPattern(s string) bool {
	prefix, open := strings.CutSuffix(s, "*")
	return open && prefix == "" || ValidTopic(prefix) && len(s) <= MaxTopicLength
}

// TopicGrant is which topics of its tenant a peer may use.
type TopicGrant struct {
	// Subscribe has the patterns of topics that the peer may listen to. Nil: all of its tenant. Empty: none.
	Subscribe []string `json:"subscribe,omitzero"`
	// Publish has the patterns of topics that the peer may publish to. None by default.
	Publish []string `json:"publish,omitzero"`
}

// Valid reports whether the grant has patterns only, and no more than it may.
func (g TopicGrant) Valid() bool {
	characters := 0
	for _, list := range [][]string{g.Subscribe, g.Publish} {
		if len(list) > MaxTopicPatterns {
			return false
		}
		for _, pattern := range list {
			if !ValidTopicPattern(pattern) {
				return false
			}
			characters += len(pattern)
		}
	}
	return characters <= MaxTopicGrant
}

// IsZero reports whether the grant is what a peer has of whom nothing was said.
func (g TopicGrant) IsZero() bool { return g.Subscribe == nil && g.Publish == nil }

// MaySubscribe reports whether the peer may listen to a topic.
func (g TopicGrant) MaySubscribe(topic string) bool {
	return g.Subscribe == nil || covers(g.Subscribe, topic)
}

// MayPublish reports whether the peer may publish to a topic.
func (g TopicGrant) MayPublish(topic string) bool { return covers(g.Publish, topic) }

func covers(patterns []string, topic string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return pattern == topic || open && strings.HasPrefix(topic, prefix)
	})
}

// TenantTopic is the backplane's name of a tenant's topic. No id has a slash, so tenants cannot meet.
func TenantTopic(tenantID, topic string) string { return "t/" + tenantID + "/" + topic }

// InboxTopic is the backplane's name of what is for a worker: for the users that are connected to it, and of calls whose peers
// are. It ends with the version of [InboxMessage]: a worker of another one does not hear it, and whoever publishes learns that.
func InboxTopic(workerID string) string { return "w/" + workerID + "/2" }

// TopicSender names who may have much to say in topics of the backplane: a tenant in its topics, or all tenants in inboxes. Empty:
// it is a call or something else of Berth's own.
func TopicSender(name string) string {
	switch {
	case strings.HasPrefix(name, "t/"):
		end := strings.IndexByte(name[2:], '/')
		return name[:2+max(end, 0)]
	case strings.HasPrefix(name, "w/"):
		return "w/"
	default:
		return ""
	}
}

// InboxMessage is what goes to an inbox: a direct message, or word of peers that are lost.
type InboxMessage struct {
	Direct *DirectMessage `json:"direct,omitempty"`
	Lost   []LostPeer     `json:"lost,omitempty"` // MaxLost at most
}

// MaxLost is the most peers that one InboxMessage names. As many of the longest ids fit in a message.
const MaxLost = 128

// LostPeer tells the worker of a call's other peer that one is gone.
type LostPeer struct {
	Call SessionKey `json:"call"`

	CallMessage // CallDisconnected
}

// DirectMessage is data for every connection of a user.
type DirectMessage struct {
	TenantID string          `json:"tenant"`
	UserID   string          `json:"user"`
	Data     json.RawMessage `json:"data"`
}
