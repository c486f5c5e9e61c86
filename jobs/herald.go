package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// CallStore takes the peers of calls off lost workers; internal/postgres documents the methods.
type CallStore interface {
	CallPeers(ctx context.Context, workerID string, instance berth.Instance) ([]berth.CallNotice, time.Time, error)
	LoseCallPeers(ctx context.Context, workerID string, instance berth.Instance, told time.Time, limit int) (int, error)
	CallNotices(ctx context.Context, limit int) ([]berth.CallNotice, error)
	ClearCallNotices(ctx context.Context, notices []berth.CallNotice) error
}

// Publisher appends messages to topics; package backplane provides it.
type Publisher interface {
	Publish(ctx context.Context, messages ...backplane.Outgoing) ([]backplane.Published, error)
}

// herald tells the surviving peers of calls who is gone: at once when a worker is declared lost, before its rows are seen to,
// which may take seconds. Losses that are written elsewhere leave notices in rows, which it tells and clears at each tick. Who
// dies between a loss and the word leaves the rows to another's tick, which tells all of them, perhaps again.
type herald struct {
	store  CallStore
	topics Publisher
	logger *slog.Logger

	telling sync.Mutex // notices are read, told and cleared by one at a time
}

// namedPeers is how many peers of those told of at once have a log line of their own.
const namedPeers = 25

// wordsAtOnce is how many words are published at a time.
const wordsAtOnce = 4

// breath is the least that others have between two chunks of peers. Where the survivors know already, it is as long as the last
// chunk took, since those who lost their worker come back meanwhile.
const breath = 25 * time.Millisecond

// announce tells the others of peers that are lost, since a gap opened: each worker of survivors is told of many at once. Those
// of a worker that does not listen for that are told call by call. Who was nowhere when the peers were listed has a notice.
// Each word makes its worker write to many sockets, so others get a breath between some.
func (h *herald) announce(ctx context.Context, lost []berth.CallNotice, opened time.Time) error {
	for i, some := range slices.Collect(slices.Chunk(byWorker(lost), wordsAtOnce)) {
		if i > 0 {
			if err := pause(ctx, breath); err != nil {
				return err
			}
		}
		began := time.Now()
		deaf, err := h.publishWords(ctx, some)
		if err != nil {
			return err
		}
		for notices := range slices.Chunk(deaf, backplane.MaxMessages) {
			if err := h.publish(ctx, notices); err != nil {
				return err
			}
		}
		var told []berth.CallNotice
		for _, w := range some {
			told = append(told, w.lost...)
		}
		h.note(ctx, told, time.Since(began), opened)
	}
	return nil
}

// word is what one worker is told at once.
type word struct {
	worker string
	lost   []berth.CallNotice // berth.MaxLost at most
}

// byWorker says whom to tell of what. Nobody is told of those that have no survivor.
func byWorker(lost []berth.CallNotice) (words []word) {
	of := map[string][]berth.CallNotice{}
	for _, n := range lost {
		if n.Survivor != "" {
			of[n.Survivor] = append(of[n.Survivor], n)
		}
	}
	for _, worker := range slices.Sorted(maps.Keys(of)) {
		for some := range slices.Chunk(of[worker], berth.MaxLost) {
			words = append(words, word{worker, some})
		}
	}
	return words
}

// publishWords returns what workers that do not listen to their inbox were to hear.
func (h *herald) publishWords(ctx context.Context, words []word) (deaf []berth.CallNotice, err error) {
	messages := make([]backplane.Outgoing, len(words))
	for i, w := range words {
		message := berth.InboxMessage{Lost: make([]berth.LostPeer, len(w.lost))}
		for j, n := range w.lost {
			message.Lost[j] = berth.LostPeer{Call: n.Key, CallMessage: n.Message()}
		}
		data, err := json.Marshal(message)
		if err != nil {
			return nil, fmt.Errorf("encode lost peers: %w", err)
		}
		messages[i] = backplane.Outgoing{Topic: berth.InboxTopic(w.worker), Data: data}
	}
	published, err := h.topics.Publish(ctx, messages...)
	if err != nil {
		return nil, fmt.Errorf("publish lost peers: %w", err)
	}
	for i, p := range published {
		if p.Processes == 0 {
			deaf = append(deaf, words[i].lost...)
		}
	}
	return deaf, nil
}

// lose takes the call peers of a lost instance off it, chunk by chunk. Calls that somebody works on are left for the next
// tick.
func (h *herald) lose(ctx context.Context, l loss) error {
	for {
		began := time.Now()
		lost, err := h.store.LoseCallPeers(ctx, l.WorkerID, l.Instance, l.told, chunk)
		if err != nil {
			return fmt.Errorf("lose call peers of %s: %w", l.WorkerID, err)
		}
		if lost == 0 {
			h.tell(ctx)
			return nil
		}
		if err := pause(ctx, max(breath, time.Since(began))); err != nil {
			return err
		}
	}
}

// tell publishes every notice that waits, and clears it. What fails is left to the next tick: a word that comes late must not
// hold up what else the reaper does. So are notices whose rows somebody works on: they stay, and come again.
func (h *herald) tell(ctx context.Context) {
	h.telling.Lock()
	defer h.telling.Unlock()
	told := make(map[berth.CallNotice]bool)
	for {
		more, err := h.tellSome(ctx, told)
		if err != nil {
			h.logger.WarnContext(ctx, "survivors not told yet", "err", err)
		}
		if err != nil || !more {
			return
		}
	}
}

// tellSome publishes the first of the notices that wait, but for those that were told, and says whether to go on.
func (h *herald) tellSome(ctx context.Context, told map[berth.CallNotice]bool) (more bool, err error) {
	notices, err := h.store.CallNotices(ctx, backplane.MaxMessages)
	if err != nil {
		return false, err
	}
	waiting := len(notices)
	notices = slices.DeleteFunc(notices, func(n berth.CallNotice) bool { return told[n] })
	if len(notices) == 0 {
		return false, nil
	}
	began := time.Now()
	if err := h.publish(ctx, notices); err != nil {
		return false, err
	}
	h.note(ctx, notices, time.Since(began), time.Time{})
	for _, n := range notices {
		told[n] = true
	}
	return waiting == backplane.MaxMessages, h.store.ClearCallNotices(ctx, notices)
}

// publish tells of peers on the topics of their calls.
func (h *herald) publish(ctx context.Context, notices []berth.CallNotice) error {
	messages := make([]backplane.Outgoing, len(notices))
	for i, n := range notices {
		data, err := json.Marshal(n.Message())
		if err != nil {
			return fmt.Errorf("encode notice: %w", err)
		}
		messages[i] = backplane.Outgoing{Topic: berth.CallTopic(n.Key), Data: data}
	}
	if _, err := h.topics.Publish(ctx, messages...); err != nil {
		return fmt.Errorf("publish notices of calls: %w", err)
	}
	return nil
}

// note says who was told of: so many lines would hold up the next who are, so some are named and all are counted.
func (h *herald) note(ctx context.Context, notices []berth.CallNotice, took time.Duration, opened time.Time) {
	since := sinceGap(opened)
	for _, n := range notices[:min(len(notices), namedPeers)] {
		h.logger.InfoContext(ctx, "peer_notified", "session_key", int64(n.Key), "peer_id", n.PeerID, "cause", n.Cause,
			"publish_ms", took.Milliseconds(), "since_gap_ms", since)
	}
	if len(notices) > namedPeers {
		h.logger.InfoContext(ctx, "peers_notified", "peers", len(notices), "publish_ms", took.Milliseconds(), "since_gap_ms", since)
	}
}
