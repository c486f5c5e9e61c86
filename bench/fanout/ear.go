package fanout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// stamp begins a message, and ends with its time in nanoseconds.
const stamp = `"at":`

// minSize has room for the stamp.
const minSize = 40

// messageOf has the size and says when it was published.
func messageOf(at time.Time, size int) json.RawMessage {
	message := strconv.AppendInt([]byte("{"+stamp), at.UnixNano(), 10)
	message = append(message, `,"pad":"`...)
	for len(message) < size-2 {
		message = append(message, 'x')
	}
	return append(message, `"}`...)
}

// window is when the messages that count are published, in nanoseconds.
type window struct{ from, to atomic.Int64 }

// never is a window that nothing is in.
func (w *window) never() {
	w.from.Store(math.MaxInt64)
	w.to.Store(math.MaxInt64)
}

// ear notes what one member hears. It is its reader's until the crowd is closed, but for heard.
type ear struct {
	window     *window
	answered   chan struct{}            // closed once the topic is listened to
	answers    func(message []byte) int // to subscribe
	subscribed bool

	took  []time.Duration // from publishing until it came
	heard atomic.Int64    // messages within the window
}

// hear takes one WebSocket message, in which centrifuge may have put several of a topic.
func (e *ear) hear(message []byte) {
	now := time.Now().UnixNano()
	if !e.subscribed && e.answers(message) > 0 {
		e.subscribed = true
		close(e.answered)
	}
	for {
		_, rest, found := bytes.Cut(message, []byte(stamp))
		if !found {
			return
		}
		message = rest
		at := number(rest)
		if at < e.window.from.Load() || at >= e.window.to.Load() {
			continue
		}
		e.took = append(e.took, time.Duration(now-at))
		e.heard.Add(1)
	}
}

// number is the one that the text begins with.
func number(text []byte) (n int64) {
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			return n
		}
		n = n*10 + int64(digit-'0')
	}
	return n
}

// awaitAnswer waits until the topic is listened to.
func (e *ear) awaitAnswer(done <-chan struct{}) error {
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	select {
	case <-e.answered:
		return nil
	case <-timer.C:
		return fmt.Errorf("subscribe: not answered in %s", answerLimit)
	case <-done:
		return fmt.Errorf("subscribe: given up")
	}
}

// answerLimit bounds the answer to one subscribe.
const answerLimit = time.Minute
