package signaling

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzFrame looks for bytes that the decoder of frames takes for something else than they are. handle has checked that they
// are UTF-8. Further seeds are in testdata/fuzz.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"pong"}`, `{"type":"bye","id":"1"}`, `{"type":"offer","id":"1","sdp":"v=0\r\n"}`, `{"type":"answer","sdp":"v=0"}`,
		`{"type":"candidate","candidate":null}`,
		`{"type":"candidate","candidate":{"candidate":"candidate:1 1 udp 1 192.0.2.7 9 typ host","sdpMid":"0","sdpMLineIndex":0,"usernameFragment":null}}`,
		`{"type":"subscribe","topics":[{"topic":"room-1","epoch":"e","offset":7},{"topic":"room-2"}]}`,
		`{"type":"unsubscribe","topics":["room-1"]}`, `{"type":"publish","topic":"room-1","data":{"a":[1,2.5e300,"x",null]}}`,
		`{"type":"pong","type":"bye"}`, `{"Type":"bye"}`, `{"type":1}`, `{"type":"bye","id":null}`, `["type"]`, `null`, ``, `{}`,
		`{"type":"bye"} x`, `{"type":"offer","sdp":"\u0000"}`, `{"type":"offer","sdp":"\ud800"}`, strings.Repeat(`{"type":`, 40),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			return
		}
		req, err := parse(data)
		var wrong *frameError
		if err != nil && !errors.Is(err, errNotJSON) && !errors.As(err, &wrong) {
			t.Fatalf("an error that nobody handles: %v", err)
		}
		if len(req.id) > MaxFrameID || !utf8.ValidString(req.id) {
			t.Fatalf("an id of %d bytes", len(req.id))
		}
		if err != nil {
			return
		}
		var object map[string]any
		if json.Unmarshal(data, &object) != nil || object["type"] != req.kind {
			t.Fatalf("taken for %q", req.kind)
		}
		if depth(data) > MaxFrameDepth {
			t.Fatal("nests too deep")
		}
		if strings.ContainsRune(req.sdp, 0) || req.candidate != nil && strings.ContainsRune(req.candidate.Candidate, 0) {
			t.Fatal("holds a NUL")
		}
	})
}
