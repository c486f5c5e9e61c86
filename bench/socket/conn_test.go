package socket_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/bench/socket"
	sdk "github.com/berthdev/berth/sdk/go"
)

// serve is a server of one kind of connection.
func serve(t *testing.T, options websocket.AcceptOptions, use func(ctx context.Context, ws *websocket.Conn)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &options)
		if err != nil {
			t.Error(err)
			return
		}
		ws.SetReadLimit(-1)
		use(r.Context(), ws)
		_ = ws.CloseNow() // it was closed in all tests that look at it
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http") + "/rtc?session=s"
}

func dial(t *testing.T, url string, options socket.Options) *socket.Conn {
	t.Helper()
	c, err := socket.Dial(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestMessagesOfAllSizesComeAndGo(t *testing.T) {
	t.Parallel()
	for _, packed := range []bool{false, true} {
		mode := websocket.CompressionDisabled
		if packed {
			mode = websocket.CompressionNoContextTakeover
		}
		url := serve(t, websocket.AcceptOptions{CompressionMode: mode}, func(ctx context.Context, ws *websocket.Conn) {
			for {
				kind, data, err := ws.Read(ctx)
				if err != nil {
					return
				}
				if err := ws.Write(ctx, kind, data); err != nil {
					t.Error(err)
				}
			}
		})
		c := dial(t, url, socket.Options{Compression: packed})
		for _, size := range []int{0, 1, 125, 126, 1023, 1024, 1025, 65_535, 65_536, 300_000} {
			want := strings.Repeat("x", size)
			if err := c.Write([]byte(want)); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Read(); err != nil || string(got) != want {
				t.Fatalf("packed %t: %d bytes of %d, %v", packed, len(got), size, err)
			}
		}
	}
}

func TestMessageInSeveralFramesIsOne(t *testing.T) {
	t.Parallel()
	url := serve(t, websocket.AcceptOptions{}, func(ctx context.Context, ws *websocket.Conn) {
		w, err := ws.Writer(ctx, websocket.MessageText)
		if err != nil {
			t.Error(err)
			return
		}
		for range 3 {
			if _, err := w.Write([]byte(strings.Repeat("y", 5000))); err != nil { // each beyond the library's buffer
				t.Error(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if got, err := dial(t, url, socket.Options{}).Read(); err != nil || len(got) != 15_000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestPingsAreAnsweredAndCounted(t *testing.T) {
	t.Parallel()
	url := serve(t, websocket.AcceptOptions{Subprotocols: []string{"berth.v1"}}, func(ctx context.Context, ws *websocket.Conn) {
		for _, frame := range []string{`{"type":"welcome"}`, `{"type":"ping"}`, `{"type":"message","topic":"a"}`} {
			if err := ws.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
				t.Error(err)
			}
		}
		if _, pong, err := ws.Read(ctx); err != nil || string(pong) != `{"type":"pong"}` {
			t.Errorf("%q, %v", pong, err)
		}
		reading := ws.CloseRead(ctx)
		if err := ws.Ping(reading); err != nil {
			t.Error(err)
		}
		_ = ws.Close(4409, "newer") // what the client says to it is looked at there
	})
	c, err := socket.Join(t.Context(), &sdk.Placement{Token: "t", Owner: sdk.Owner{SignalingURL: url}}, socket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var heard []string
	err = c.Run(func(message []byte) { heard = append(heard, socket.Kind(message)) })
	if closed, ok := errors.AsType[*socket.ClosedError](err); !ok || closed.Code != 4409 || closed.Reason != "newer" {
		t.Errorf("ended by %v", err)
	}
	if len(heard) != 1 || heard[0] != "message" || c.Pings() != 1 {
		t.Errorf("heard %q and %d pings", heard, c.Pings())
	}
}

func TestRefusalsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	_, err := socket.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), socket.Options{})
	if refused, ok := errors.AsType[*socket.RefusedError](err); !ok || refused.Status != 503 || refused.RetryAfter != "3" {
		t.Errorf("%v, want 503 after 3 s", err)
	}
	url := serve(t, websocket.AcceptOptions{}, func(_ context.Context, ws *websocket.Conn) { _ = ws.Close(4410, "moved") })
	_, err = socket.Join(t.Context(), &sdk.Placement{Owner: sdk.Owner{SignalingURL: url}}, socket.Options{})
	if closed, ok := errors.AsType[*socket.ClosedError](err); !ok || closed.Code != 4410 {
		t.Errorf("%v, want 4410", err)
	}
}

func TestNoWelcomeEndsWithTheContext(t *testing.T) {
	t.Parallel()
	url := serve(t, websocket.AcceptOptions{}, func(ctx context.Context, ws *websocket.Conn) { _, _, _ = ws.Read(ctx) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := socket.Join(ctx, &sdk.Placement{Owner: sdk.Owner{SignalingURL: url}}, socket.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestPingAmongLinesIsAnswered(t *testing.T) {
	t.Parallel()
	url := serve(t, websocket.AcceptOptions{}, func(ctx context.Context, ws *websocket.Conn) {
		for _, message := range []string{"{}", `{"a":{}}`, "{\"a\":1}\n{}\n{\"b\":2}", "{}\n{\"c\":3}"} {
			if err := ws.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			if _, pong, err := ws.Read(ctx); err != nil || string(pong) != "{}" {
				t.Errorf("%q, %v", pong, err)
			}
		}
	})
	c := dial(t, url, socket.Options{Dialect: socket.Dialect{Ping: "{}", Pong: "{}", Lines: true}})
	heard := 0
	_ = c.Run(func([]byte) { heard++ }) // until the server is content
	if heard != 3 || c.Pings() != 3 {
		t.Errorf("heard %d messages and %d pings, want 3 and 3", heard, c.Pings())
	}
}
