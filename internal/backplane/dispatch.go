package backplane

import "context"

// dispatch delivers what notifications bring and what continues its topic.
func (b *Bus) dispatch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case payload := <-b.inbox:
			b.open(ctx, payload)
		}
		if b.overflow.Swap(false) {
			b.config.Logger.WarnContext(ctx, "backplane notifications dropped", "bound", maxInbox)
			b.resync(causeOverflow, false)
		}
	}
}

// open delivers the messages of one notification.
func (b *Bus) open(ctx context.Context, payload string) {
	entries, err := parse(payload)
	b.metrics.received.Add(float64(len(entries)))
	for _, e := range entries {
		m, to := b.streams.dispatch(e)
		if len(to) > 0 {
			b.deliver(m, to)
		}
		b.streams.dispatched()
	}
	if err != nil {
		b.config.Logger.WarnContext(ctx, "backplane notification malformed", "bytes", len(payload), "err", err)
		b.resync(causeMalformed, false)
	}
}

func (b *Bus) deliver(m Message, to []*Subscription) {
	if len(to) > 0 && !m.Notice() {
		b.metrics.delivered.Inc()
	}
	for _, sub := range to {
		sub.offer(m)
	}
}
