package api

import (
	"testing"
	"testing/synctest"

	"github.com/berthdev/berth/internal/backplane"
)

func sized(n int64, bytes int) backplane.Message {
	return backplane.Message{Position: backplane.Position{Offset: n}, Data: make([]byte, bytes)}
}

func TestHistoryWaitsForRoomAndWhatIsLiveDoesNot(t *testing.T) {
	t.Parallel()
	for name, bytes := range map[string]int{"by number": 0, "by bytes": 64 << 10} {
		synctest.Test(t, func(t *testing.T) {
			q := newTopicQueue()
			const history = 3 * queueMessages
			put := make(chan struct{})
			go func() {
				defer close(put)
				for n := range int64(history) {
					q.put(sized(n, bytes))
				}
				q.live()
			}()
			next, rounds := int64(0), 0
			for next < history {
				synctest.Wait() // until the queue is full, or all is put
				messages, over := q.take()
				size := 0
				for _, m := range messages {
					if m.Position.Offset != next {
						t.Fatalf("%s: %d, want %d", name, m.Position.Offset, next)
					}
					next++
					size += len(m.Data)
				}
				if over || len(messages) == 0 || len(messages) > queueMessages || size > queueBytes {
					t.Fatalf("%s: %d messages of %d bytes, over %v", name, len(messages), size, over)
				}
				rounds++
			}
			<-put
			if rounds < 3 {
				t.Errorf("%s: %d rounds", name, rounds)
			}
			for n := range int64(2 * queueMessages) { // does not wait, though nobody takes
				q.put(sized(n, bytes))
			}
			if messages, over := q.take(); !over || len(messages) == 0 || len(messages) > queueMessages || messages[0].Position.Offset != 0 {
				t.Errorf("%s: %d messages are left, over %v", name, len(messages), over)
			}
		})
	}
}

func TestEndLetsGoOfWhoeverWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTopicQueue()
		put := make(chan struct{})
		go func() {
			defer close(put)
			for n := range int64(2 * queueMessages) {
				q.put(sized(n, 0))
			}
		}()
		synctest.Wait()
		select {
		case <-put:
			t.Fatal("nothing waited")
		default:
		}
		q.end()
		<-put
		if messages, over := q.take(); len(messages) > 0 || !over {
			t.Errorf("%d messages, over %v", len(messages), over)
		}
	})
}

func TestMessageLargerThanTheQueueIsTakenAlone(t *testing.T) {
	t.Parallel()
	q := newTopicQueue()
	q.live()
	q.put(sized(1, 2*queueBytes))
	if messages, over := q.take(); len(messages) != 1 || over {
		t.Errorf("%d messages, over %v", len(messages), over)
	}
}
