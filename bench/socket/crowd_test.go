package socket_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/bench/socket"
)

func TestCrowdSettlesOnceAllWerePinged(t *testing.T) {
	t.Parallel()
	url := serve(t, websocket.AcceptOptions{}, func(ctx context.Context, ws *websocket.Conn) {
		for range 2 {
			if ws.Write(ctx, websocket.MessageText, []byte(`{"type":"ping"}`)) != nil {
				return
			}
			if _, _, err := ws.Read(ctx); err != nil {
				return
			}
		}
		if _, _, err := ws.Read(ctx); err == nil {
			t.Error("a frame came that was not asked for")
		}
	})
	var heard atomic.Int64
	crowd, err := socket.Open(t.Context(), 20, 4, func(ctx context.Context, _ int) (*socket.Conn, error) {
		return socket.Dial(ctx, url, socket.Options{Dialect: socket.Berth()})
	}, func(int, []byte) { heard.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer crowd.Close()
	deadline := time.Now().Add(10 * time.Second)
	for i := 0; i < 20; {
		if crowd.Conns[i].Pings() == 2 {
			i++
		} else if time.Now().After(deadline) {
			t.Fatalf("connection %d was pinged %d times", i, crowd.Conns[i].Pings())
		}
	}
	if err := crowd.Settle(t.Context(), 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "no ping") {
		t.Errorf("%v: there is no third ping", err)
	}
	if err := crowd.Whole(); err != nil || heard.Load() > 0 {
		t.Errorf("%v, heard %d", err, heard.Load())
	}
}

func TestCrowdThatLostSomebodyIsNotWhole(t *testing.T) {
	t.Parallel()
	url := serve(t, websocket.AcceptOptions{}, func(_ context.Context, ws *websocket.Conn) { _ = ws.Close(1013, "slow") })
	crowd, err := socket.Open(t.Context(), 1, 1, func(ctx context.Context, _ int) (*socket.Conn, error) {
		return socket.Dial(ctx, url, socket.Options{})
	}, func(int, []byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer crowd.Close()
	if err := crowd.Settle(t.Context(), 10*time.Second); err == nil || !strings.Contains(err.Error(), "1013") {
		t.Errorf("%v", err)
	}
}
