package signaling

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// Close codes of the protocol; docs/signaling.md says what a client does on each. Codes from 4000 up are Berth's own
// (RFC 6455 section 7.4.2).
const (
	CloseBye      = websocket.StatusNormalClosure           // 1000: the peer said bye
	CloseProtocol = websocket.StatusProtocolError           // 1002: a broken WebSocket frame
	CloseNotUTF8  = websocket.StatusInvalidFramePayloadData // 1007: a text frame that is not UTF-8
	CloseTooBig   = websocket.StatusMessageTooBig           // 1009: a message over MaxMessageBytes
	CloseRestart  = websocket.StatusServiceRestart          // 1012: planned move; the reason carries retry_ms
	CloseTryLater = websocket.StatusTryAgainLater           // 1013: overloaded or too slow
	CloseBad      = websocket.StatusCode(4400)              // a message or session that no correct client makes
	CloseToken    = websocket.StatusCode(4401)              // token missing, expired, forged or for another session
	CloseEnded    = websocket.StatusCode(4404)              // the session ended
	CloseReplaced = websocket.StatusCode(4409)              // a newer connection of the same peer took over
	CloseMoved    = websocket.StatusCode(4410)              // the session moved, or the token's generation is history
)

// Reasons that accompany a close code. They are part of the protocol and at most 123 bytes long.
const (
	reasonBye           = "bye"
	reasonReplaced      = "a newer connection of this peer took over"
	reasonMoved         = "moved"
	reasonStale         = "stale generation"
	reasonInDoubt       = "the worker is asking the database"
	reasonNotReady      = "the worker is not ready"
	reasonUnavailable   = "the database did not answer"
	reasonSlow          = "too slow: frames wait too long or take too much memory"
	reasonTooMany       = "too many frames: keep to the rate"
	reasonSilent        = "nothing heard: answer ping with pong"
	reasonBinary        = "binary message: send JSON in text frames"
	reasonNotUTF8       = "text frame is not UTF-8"
	reasonProtocol      = "broken WebSocket frame"
	reasonTooBig        = "message over 131072 bytes"
	reasonNotJSON       = "not a JSON object with a type"
	reasonTooManyErrors = "too many wrong frames"
	reasonNoProtocol    = "offer the subprotocol berth.v1"
	reasonNoToken       = "offer the subprotocol token.<token>"
	reasonToken         = "token not accepted"
	reasonOtherSession  = "the token is for another session"
	reasonMedia         = "the media engine cannot take this session now"
	reasonNoHandler     = "this worker has no handler of the session's name"
	reasonInternal      = "internal error"
	reasonEnded         = "session ended"
)

// retryReason is the reason of a planned move: how long the client waits before it connects again. Waits are spread
// over the window, so that clients do not come back together.
func retryReason(window time.Duration) string {
	return retryAfter(time.Duration(rand.Int64N(int64(max(window, 1)))))
}

func retryAfter(wait time.Duration) string {
	return "retry_ms=" + strconv.FormatInt(wait.Milliseconds(), 10)
}

// endedReason names why the session ended, for people who read logs; a client decides by the code.
func endedReason(reason string) string {
	if reason == "" {
		return reasonEnded
	}
	return fmt.Sprintf("%s: %s", reasonEnded, reason)
}
