package api

import (
	"testing"
	"testing/synctest"

	"github.com/berthdev/berth/internal/backplane"
)

func sized(n int64, bytes int) backplane.Message {
	return backplane.Message{Position: backplane.Position{Offset: n}, Data: make([]byte, bytes)}
}

func replayed(n int64, bytes int) backplane.Message {
	m := sized(n, bytes)
	m.Replayed = true
	return m
}

func TestHistoryWaitsForRoomAndLeavesMostOfIt(t *testing.T) {
	t.Parallel()
	for name, bytes := range map[string]int{"by number": 0, "by bytes": 64 << 10} {
		synctest.Test(t, func(t *testing.T) {
			q := newTopicQueue()
			const history = 3 * queueMessages
			put := make(chan struct{})
			go func() {
				defer close(put)
				for n := range int64(history) {
					q.put(replayed(n, bytes))
				}
			}()
			for next := int64(0); next < history; {
				synctest.Wait() // until there is no room, or all is put
				messages, over := q.take()
				size := 0
				for _, m := range messages {
					if m.Position.Offset != next {
						t.Fatalf("%s: %d, want %d", name, m.Position.Offset, next)
					}
					next++
					size += len(m.Data)
				}
				if over || len(messages) == 0 || len(messages) > queueMessages/4 || size > queueBytes/4 {
					t.Fatalf("%s: %d messages of %d bytes, over %v", name, len(messages), size, over)
				}
			}
			<-put
		})
	}
}

// The client takes nothing: what is live does not wait for it, whatever there is of its history, and has room.
func TestWhatIsLiveHasRoomBesideHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTopicQueue()
		put := make(chan struct{})
		go func() {
			defer close(put)
			for n := range int64(queueMessages) {
				q.put(replayed(n, 0))
			}
		}()
		synctest.Wait()
		for n := range int64(queueMessages / 2) {
			q.put(sized(n, 0))
		}
		if _, over := q.take(); over {
			t.Fatal("cut by its own history")
		}
		for range 2 * queueMessages / roomMessages {
			synctest.Wait()
			q.take()
		}
		<-put
		for n := range int64(2 * queueMessages) { // does not wait, though nobody takes
			q.put(sized(n, 0))
		}
		if messages, over := q.take(); !over || len(messages) != queueMessages || messages[0].Position.Offset != 0 {
			t.Errorf("%d messages are left, over %v", len(messages), over)
		}
	})
}

func TestEndLetsGoOfWhoeverWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTopicQueue()
		put := make(chan struct{})
		go func() {
			defer close(put)
			for n := range int64(2 * queueMessages) {
				q.put(replayed(n, 0))
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
	q.put(sized(1, 2*queueBytes))
	if messages, over := q.take(); len(messages) != 1 || over {
		t.Errorf("%d messages, over %v", len(messages), over)
	}
}
