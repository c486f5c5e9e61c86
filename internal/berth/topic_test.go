package berth_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berthdev/berth/internal/berth"
)

func TestTopicGrantsAllowWhatTheirPatternsCover(t *testing.T) {
	t.Parallel()
	all, none := berth.TopicGrant{}, berth.TopicGrant{Subscribe: []string{}, Publish: []string{}}
	some := berth.TopicGrant{Subscribe: []string{"room:1", "news:*"}, Publish: []string{"*"}}
	for _, tc := range []struct {
		grant              berth.TopicGrant
		topic              string
		subscribe, publish bool
	}{
		{all, "room:1", true, false},
		{none, "room:1", false, false},
		{some, "room:1", true, true},
		{some, "room:12", false, true},
		{some, "news:", true, true},
		{some, "news:sports", true, true},
		{some, "news", false, true},
	} {
		if s, p := tc.grant.MaySubscribe(tc.topic), tc.grant.MayPublish(tc.topic); s != tc.subscribe || p != tc.publish {
			t.Errorf("%+v lets subscribe to %s: %v, publish: %v", tc.grant, tc.topic, s, p)
		}
	}
}

func TestTopicGrantsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", berth.MaxTopicLength)
	for _, tc := range []struct {
		list []string
		ok   bool
	}{
		{nil, true},
		{[]string{}, true},
		{[]string{"*", "room:*", "room:1"}, true},
		{slices.Repeat([]string{long}, berth.MaxTopicGrant/berth.MaxTopicLength), true},
		{slices.Repeat([]string{"x"}, berth.MaxTopicPatterns+1), false},
		{[]string{""}, false},
		{[]string{"a*b"}, false},
		{[]string{"**"}, false},
		{[]string{long + "*"}, false},
		{[]string{"room/1"}, false},
	} {
		for _, grant := range []berth.TopicGrant{{Subscribe: tc.list}, {Publish: tc.list}} {
			if grant.Valid() != tc.ok {
				t.Errorf("a grant of %d patterns that begin with %.20q is valid: %v", len(tc.list), tc.list, !tc.ok)
			}
		}
	}
	both := slices.Repeat([]string{long}, berth.MaxTopicGrant/berth.MaxTopicLength)
	if (berth.TopicGrant{Subscribe: both, Publish: []string{"x"}}).Valid() {
		t.Error("the lists are bounded one by one only")
	}
}

func TestSendersOfTopicsAreTenants(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		berth.TenantTopic("acme", "chat"): "t/acme", berth.TenantTopic("acme", "t/x"): "t/acme", berth.TenantTopic("b", "chat"): "t/b",
		berth.InboxTopic("w1"): "w/", berth.InboxTopic("w2"): "w/", berth.CallTopic(7): "", "": "", "t/": "t/", "t/x": "t/",
	} {
		if got := berth.TopicSender(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
