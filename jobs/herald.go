package jobs

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
)

// CallStore takes the peers of calls off lost workers; internal/postgres documents the methods.
type CallStore interface {
	LoseCallPeers(ctx context.Context, workerID string, instance berth.Instance, limit int) (int, error)
	CallNotices(ctx context.Context, limit int) ([]berth.CallNotice, error)
	ClearCallNotices(ctx context.Context, notices []berth.CallNotice) error
}

// Publisher appends messages to topics; package backplane provides it.
type Publisher interface {
	Publish(ctx context.Context, messages ...backplane.Outgoing) error
}

// herald tells the surviving peers of calls who is gone. A loss and its notice are written in one transaction, and the
// notice is cleared once it is published: a herald that dies in between leaves it to the next tick, which tells it again.
type herald struct {
	store  CallStore
	topics Publisher
	logger *slog.Logger
}

// lose takes the call peers of a lost instance off it, chunk by chunk, and tells the others after each. Calls that somebody
// works on are left for the next tick.
func (h *herald) lose(ctx context.Context, s berth.Sighting) error {
	for {
		lost, err := h.store.LoseCallPeers(ctx, s.WorkerID, s.Instance, chunk)
		if err != nil {
			return fmt.Errorf("lose call peers of %s: %w", s.WorkerID, err)
		}
		if lost == 0 {
			return nil
		}
		if err := h.tell(ctx); err != nil {
			return err
		}
	}
}

// tell publishes every notice that waits.
func (h *herald) tell(ctx context.Context) error {
	for {
		notices, err := h.store.CallNotices(ctx, chunk)
		if err != nil {
			return fmt.Errorf("read notices of calls: %w", err)
		}
		if len(notices) == 0 {
			return nil
		}
		if err := h.publish(ctx, notices); err != nil {
			return err
		}
		if len(notices) < chunk {
			return nil
		}
	}
}

func (h *herald) publish(ctx context.Context, notices []berth.CallNotice) error {
	messages := make([]backplane.Outgoing, len(notices))
	for i, n := range notices {
		data, err := json.Marshal(berth.CallMessage{
			Type: berth.CallDisconnected, PeerID: n.PeerID, Role: n.Role, Reason: n.Cause,
		})
		if err != nil {
			return fmt.Errorf("encode notice: %w", err)
		}
		messages[i] = backplane.Outgoing{Topic: berth.CallTopic(n.Key), Data: data}
	}
	if err := h.topics.Publish(ctx, messages...); err != nil {
		return fmt.Errorf("publish notices of calls: %w", err)
	}
	if err := h.store.ClearCallNotices(ctx, notices); err != nil {
		return fmt.Errorf("clear notices of calls: %w", err)
	}
	for _, n := range notices {
		h.logger.InfoContext(ctx, "peer_notified", "session_key", int64(n.Key), "peer_id", n.PeerID, "cause", n.Cause)
	}
	return nil
}
