package backplane

import (
	"math/rand/v2"
	"time"
)

const (
	// resetPace is how much time resets have for each subscriber of the process, up to Config.ResetSpread.
	resetPace = time.Millisecond
	// resetCheck is how often it is looked whose time has come.
	resetCheck = 20 * time.Millisecond
)

// postpone says whether what was read of a stream is to wait, since its topic is another than before. Tables are lost as a
// whole, so all topics of all processes are; and whoever is told may come at once to ask for what it missed. Meanwhile
// the stream brings nothing, and who subscribes begins with the new topic.
func (b *streams) postpone(s *stream, read page, most time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.state != reading || s.at.Epoch == read.epoch {
		return false
	}
	if s.ripe {
		s.ripe = false
		return false
	}
	s.next = Position{Epoch: read.epoch, Offset: read.last}
	if _, waits := b.resets[s]; waits {
		return true
	}
	spread := min(most, time.Duration(b.members)*resetPace)
	if spread <= resetCheck {
		return false
	}
	b.resets[s] = time.Now().Add(rand.N(spread))
	return true
}

// ripen leaves the streams to the reader whose time has come, and says for how long it may wait for the next: negative if
// there is none.
func (b *streams) ripen(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s, due := range b.resets {
		if now.Before(due) {
			continue
		}
		delete(b.resets, s)
		if s.state == reading {
			s.ripe = true
			b.enqueue(s)
		}
	}
	if len(b.resets) == 0 {
		return -1
	}
	return resetCheck
}
