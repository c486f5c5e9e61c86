package signaling

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func TestAnswerToTheConnectionBeforeIsNotPassedOn(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	a.send(`{"type":"offer","sdp":"old"}`)
	b.expect("offer")
	_ = a.ws.CloseNow()
	b.expect("peer-disconnected")
	back, _ := w1.join(1, "a")
	b.expect("peer-connected")
	b.send(`{"type":"answer","sdp":"to the old one"}`)
	b.send(`{"type":"offer","sdp":"new"}`)
	if f := back.expect("offer"); f.text("sdp") != "new" {
		t.Errorf("got %v", f)
	}
	back.send(`{"type":"answer","sdp":"to the new one"}`)
	b.expect("answer")
	back.send(`{"type":"offer","sdp":"again"}`)
	b.expect("rejoin-offer")
	b.send(`{"type":"answer","sdp":"to the one that came back"}`)
	if f := back.expect("answer"); f.text("sdp") != "to the one that came back" {
		t.Errorf("got %v", f)
	}
}

func TestCandidatesAreRelayedAsTheyAre(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	for _, want := range []any{
		map[string]any{"candidate": "", "sdpMid": "0"}, // the end of one generation, and not of all
		map[string]any{"candidate": ""},
		map[string]any{"candidate": "candidate:1", "sdpMid": "0", "sdpMLineIndex": 0.0, "usernameFragment": "u"},
		nil,
	} {
		a.send(string(encode(map[string]any{"type": "candidate", "candidate": want})))
		if diff := cmp.Diff(want, b.expect("candidate")["candidate"]); diff != "" {
			t.Error(diff)
		}
	}
}

// What would be lost if the other peer came later is refused, so that the client knows.
func TestCandidatesBeyondThoseThatAreKeptAreRefused(t *testing.T) {
	t.Parallel()
	w1, w2 := newCallServers(t)
	a, _ := w1.join(1, "a")
	a.send(`{"type":"offer","sdp":"early"}`)
	for i := range maxKept {
		a.send(fmt.Sprintf(`{"type":"candidate","candidate":{"candidate":"c%d"}}`, i))
	}
	a.send(`{"type":"candidate","id":"more","candidate":null}`)
	if f := a.expect("error"); f.text("code") != MediaFailed || f.text("reply_to") != "more" {
		t.Errorf("got %v", f)
	}
	b, _ := w2.join(1, "b")
	a.expect("peer-connected")
	b.expect("offer")
	for range maxKept {
		b.expect("candidate")
	}
	b.send(`{"type":"answer","sdp":"late"}`)
	a.expect("answer")
	a.send(`{"type":"candidate","candidate":null}`)
	b.expect("candidate")
}

func TestNULIsFoundInStringsOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`"\u0000"`: true, `{"a":["\\\u0000"]}`: true, `{"\u0000":1}`: true,
		`"\\u0000"`: false, `"\u0001"`: false, `null`: false, `["\\u0000","b"]`: false,
	} {
		if got := holdsNUL(jsontext.Value(text)); got != want {
			t.Errorf("%s: got %v", text, got)
		}
	}
}
