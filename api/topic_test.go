package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// subscribe returns what a process hears of a topic of the backplane: each message's data.
func (r *rig) subscribe(topic string) <-chan string {
	r.t.Helper()
	heard := make(chan string, 100)
	subscription, err := r.store.backplane.Memory.Subscribe(r.t.Context(), topic, nil, func(m backplane.Message) {
		if !m.Notice() {
			heard <- string(m.Data)
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(subscription.Unsubscribe)
	return heard
}

func (r *rig) publish(topic, data string) wire.PublishedMessage {
	r.t.Helper()
	a := r.call("POST", "/v1/topics/"+topic+"/messages", r.tenant, `{"data":`+data+`}`)
	if a.status != http.StatusOK {
		r.t.Fatalf("publish: %d %s", a.status, a.body)
	}
	return parse[wire.PublishedMessage](r.t, a)
}

func TestPublishedMessageReachesWhoListensInItsTenant(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	heard, theirs := r.subscribe("t/t-1/room:7"), r.subscribe("t/t-2/room:7")
	first := r.publish("room:7", `{ "text": "hello" }`)
	if first.Topic != "room:7" || first.Epoch == "" || first.Offset != 1 || first.Processes != 1 {
		t.Errorf("got %+v", first)
	}
	// Any JSON is data, and its numbers and texts stay as they are.
	for i, data := range []string{`null`, `[null,{"a":null}]`, `0.10`, `1e400`, `"<\u0041>"`, `true`, `""`, `{"data":1}`} {
		if got := r.publish("room:7", data); got.Offset != int64(2+i) || got.Epoch != first.Epoch {
			t.Errorf("%s: got %+v", data, got)
		}
	}
	for _, want := range []string{`{"text":"hello"}`, `null`, `[null,{"a":null}]`, `0.10`, `1e400`, `"<\u0041>"`, `true`, `""`, `{"data":1}`} {
		if got := <-heard; got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
	if len(theirs) != 0 {
		t.Error("another tenant heard it")
	}
	if got := r.publish("silent", `1`); got.Processes != 0 || got.Offset != 1 {
		t.Errorf("to nobody: %+v", got)
	}
}

func TestMessagesAreBoundedAndCheckedBeforeTheBackplane(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.store.users["t-1 u"] = []berth.UserConnections{{WorkerID: "w-1", Connections: 1}}
	text := func(bytes int) string { return `{"data":"` + strings.Repeat("x", bytes-2) + `"}` }
	for path, most := range map[string]int{"/v1/topics/a/messages": backplane.MaxData, "/v1/users/u/messages": berth.MaxDirectData} {
		if a := r.call("POST", path, r.tenant, text(most)); a.status != 200 {
			t.Errorf("%s: %d bytes: %d %s", path, most, a.status, a.body)
		}
		if a := r.call("POST", path, r.tenant, text(most+1)); a.status != 413 || a.problem(t).Code != "too_large" {
			t.Errorf("%s: one more: %d %s", path, a.status, a.body)
		}
		if a := r.call("POST", path, r.tenant, text(most)[:9]+strings.Repeat("<", most-2)+`"}`); a.status != 200 {
			t.Errorf("%s: characters that some encoders escape: %d %s", path, a.status, a.body)
		}
		if a := r.call("POST", path, r.tenant, `{"data":`+strings.Repeat(" ", 2*most)+`1}`); a.status != 413 {
			t.Errorf("%s: white space without end: %d", path, a.status)
		}
		before, _ := r.store.backplane.Memory.Presence(t.Context(), "t/t-1/a")
		for body, field := range map[string]string{
			`{}`: "data", ``: "body", `[]`: "body", `{"data":1,"data":2}`: "data", `{"data":1,"more":2}`: "more", `{"Data":1}`: "Data", `{"data":}`: "data",
			`{"data":"\u0000"}`: "data", `{"data":"\ud800"}`: "data", `{"data":` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `}`: "data",
		} {
			a := r.call("POST", path, r.tenant, body)
			if a.status != 400 || !strings.HasPrefix((*a.problem(t).Errors)[0].Field, field) && field != "data" {
				t.Errorf("%s: %.40s: %d %s", path, body, a.status, a.body)
			}
		}
		if after, _ := r.store.backplane.Memory.Presence(t.Context(), "t/t-1/a"); after != before {
			t.Errorf("%s: what was refused was published", path)
		}
	}
	r.store.calls.Store(0)
	for path, field := range map[string]string{"/v1/topics/a%2Fb/messages": "topic", "/v1/topics/-/messages": "topic", "/v1/users/a:b/messages": "id"} {
		r.refusedBy(r.call("POST", path, r.tenant, `{"data":1}`), path, field)
	}
	r.refusedBy(r.call("GET", "/v1/topics/a*", r.tenant, ""), "a*", "topic")
}

func TestTopicSaysWhereItIsAndWhoListens(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	state := func(key string) wire.TopicState {
		return parse[wire.TopicState](t, r.call("GET", "/v1/topics/a", key, ""))
	}
	if got := state(r.tenant); !cmp.Equal(got, wire.TopicState{Topic: "a"}) {
		t.Errorf("before it is used: %+v", got)
	}
	r.subscribe("t/t-1/a")
	r.subscribe("t/t-1/a")
	at := r.publish("a", `1`)
	if got := state(r.tenant); !cmp.Equal(got, wire.TopicState{Topic: "a", Epoch: &at.Epoch, Offset: 1, Members: 2, Processes: 1}) {
		t.Errorf("got %+v", got)
	}
	if got := state(r.other); got.Offset != 0 || got.Members != 0 {
		t.Errorf("another tenant's: %+v", got)
	}
}

func TestMessageToAUserGoesToTheWorkersThatHoldIt(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	r := newRig(t, func(c *Config, _ *store) { c.Registerer = registry })
	r.store.users["t-1 ann"] = []berth.UserConnections{{WorkerID: "w-1", Connections: 2}, {WorkerID: "w-2", Connections: 1}, {WorkerID: "dead", Connections: 5}}
	first, second, third := r.subscribe(berth.InboxTopic("w-1")), r.subscribe(berth.InboxTopic("w-2")), r.subscribe(berth.InboxTopic("w-3"))
	send := func(key, user string) wire.DirectMessage {
		return parse[wire.DirectMessage](t, r.call("POST", "/v1/users/"+user+"/messages", key, `{"data":{"n":1}}`))
	}
	if got := send(r.tenant, "ann"); got != (wire.DirectMessage{User: "ann", Connections: 3, Workers: 2}) {
		t.Errorf("got %+v", got)
	}
	for _, heard := range []<-chan string{first, second} {
		var got berth.InboxMessage
		if err := json.Unmarshal([]byte(<-heard), &got); err != nil || got.Direct == nil {
			t.Fatalf("heard %+v, %v", got, err)
		}
		if d := got.Direct; d.TenantID != "t-1" || d.UserID != "ann" || string(d.Data) != `{"n":1}` {
			t.Errorf("heard %+v", d)
		}
	}
	if len(third) != 0 {
		t.Error("a worker that does not hold the user was told")
	}
	for key, user := range map[string]string{r.tenant: "nobody", r.other: "ann"} {
		if got := send(key, user); got != (wire.DirectMessage{User: user}) {
			t.Errorf("to nobody: %+v", got)
		}
	}
	r.store.setFail(fmt.Errorf("dial: %w", berth.ErrUnavailable))
	if a := r.call("POST", "/v1/users/ann/messages", r.tenant, `{"data":1}`); a.status != 503 {
		t.Errorf("without the database: %d", a.status)
	}
	want := `
		# HELP berth_direct_messages_total Messages to users by outcome: sent to workers, nobody was connected, or failed.
		# TYPE berth_direct_messages_total counter
		berth_direct_messages_total{outcome="failed"} 1
		berth_direct_messages_total{outcome="nobody"} 2
		berth_direct_messages_total{outcome="sent"} 1
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "berth_direct_messages_total"); err != nil {
		t.Error(err)
	}
}

func TestUserOnManyWorkersIsReachedOnAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	heard := make(chan struct{}, 1000)
	for i := range backplane.MaxMessages + 3 {
		id := fmt.Sprintf("w-%d", i)
		r.store.users["t-1 ann"] = append(r.store.users["t-1 ann"], berth.UserConnections{WorkerID: id, Connections: 1})
		_, err := r.store.backplane.Memory.Subscribe(t.Context(), berth.InboxTopic(id), nil, func(m backplane.Message) {
			if !m.Notice() {
				heard <- struct{}{}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	a := r.call("POST", "/v1/users/ann/messages", r.tenant, `{"data":1}`)
	if got := parse[wire.DirectMessage](t, a); got.Workers != backplane.MaxMessages+3 || len(heard) != got.Workers {
		t.Errorf("%+v, %d heard", got, len(heard))
	}
}

func TestTopicsAnswer503WhileTheBackplaneIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.store.users["t-1 ann"] = []berth.UserConnections{{WorkerID: "w-1", Connections: 1}}
	for _, err := range []error{fmt.Errorf("publish: %w", berth.ErrUnavailable), backplane.ErrClosed} {
		r.store.backplane.setFail(err)
		for call, body := range map[string]string{
			"POST /v1/topics/a/messages": `{"data":1}`, "POST /v1/users/ann/messages": `{"data":1}`, "GET /v1/topics/a": "", "GET /v1/topics/a/messages": "",
		} {
			method, path, _ := strings.Cut(call, " ")
			if a := r.call(method, path, r.tenant, body); a.status != 503 || a.problem(t).Code != "unavailable" { // checkAnswer looks at Retry-After
				t.Errorf("%s with %v: %d %s", call, err, a.status, a.body)
			}
		}
	}
}
