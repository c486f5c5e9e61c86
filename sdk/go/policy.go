package berth

import (
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// Backoff of connections: full jitter over a window that doubles with every attempt.
const (
	linkBackoffBase = 500 * time.Millisecond
	linkBackoffCap  = 30 * time.Second
	lostWindow      = 4 * time.Second  // least window after an open signaling-only link was lost
	plannedWindow   = 8 * time.Second  // least window after a planned close
	stableAfter     = 30 * time.Second // a link that lived so long makes the next loss a first one
)

// step is what a connection does next.
type step int

const (
	stepStop      step = iota // final
	stepReconnect             // the same URL
	stepRejoin                // ask the API who owns the session
)

// plan is the policy's answer to a loss.
type plan struct {
	step step
	lost bool          // for stepRejoin: say that the owner is lost
	wait time.Duration // before the step
	err  error         // for stepStop
}

// policy decides what follows a loss. It is a plain value without a clock: its owner feeds it losses and the time it
// has been without a connection.
type policy struct {
	signalingOnly bool          // nothing is silent meanwhile, so there is time to spread
	giveUpAfter   time.Duration // without a connection
	random        func() float64

	attempt   int  // losses since the last stable link
	triedSame bool // the same URL was tried since then
	refreshed bool // a fresh token was asked for since then
	lost      bool // what the last rejoin said; repeated until one succeeds
}

// next returns what to do about a loss; away is how long there has been no connection.
func (p *policy) next(l *loss, away time.Duration) plan {
	if l.uptime >= stableAfter {
		p.attempt, p.triedSame, p.refreshed = 0, false, false
	}
	result := p.choose(l)
	if result.step == stepStop {
		return result
	}
	result.wait = p.wait(l, result.step)
	if add(away, result.wait) >= p.giveUpAfter {
		// Also when the other side asked for more patience than there is: its wish is in the error.
		return plan{step: stepStop, err: fmt.Errorf("%w after %s: %w", ErrGaveUp, away.Round(time.Second), l.err)}
	}
	p.attempt++
	if result.step == stepRejoin {
		p.lost = result.lost
	}
	return result
}

func (p *policy) choose(l *loss) plan {
	switch l.kind {
	case lossFinal:
		return plan{step: stepStop, err: l.err}
	case lossForbids:
		return plan{step: stepStop, err: fmt.Errorf("%w: %w", ErrUnauthorized, l.err)}
	case lossRejoin:
		return plan{step: stepRejoin, lost: p.lost}
	case lossRefused:
		// Whoever refuses is alive: no reason to call the owner lost.
		return p.sameOnce(false)
	case lossDial:
		return plan{step: stepRejoin, lost: true}
	case lossMedia:
		return p.sameOnce(true)
	case lossClosed:
		return p.chooseByCode(l)
	default:
		return p.sameOnce(true)
	}
}

func (p *policy) chooseByCode(l *loss) plan {
	if reason := finalReason(l.code); reason != nil {
		return plan{step: stepStop, err: fmt.Errorf("%w: %w", reason, l.err)}
	}
	switch l.code {
	case closeToken:
		if p.refreshed {
			return plan{step: stepStop, err: fmt.Errorf("%w: %w", ErrUnauthorized, l.err)}
		}
		p.refreshed = true
		return plan{step: stepRejoin}
	case closeMoved:
		return plan{step: stepRejoin}
	case websocket.StatusServiceRestart, websocket.StatusTryAgainLater:
		if !l.opened {
			return p.sameOnce(false) // whoever is not ready twice may not own the session any more
		}
		p.triedSame = true
		return plan{step: stepReconnect}
	default:
		return p.sameOnce(true)
	}
}

// sameOnce tries the same URL once; the next time it asks the API.
func (p *policy) sameOnce(lost bool) plan {
	if p.triedSame {
		return plan{step: stepRejoin, lost: lost}
	}
	p.triedSame = true
	return plan{step: stepReconnect}
}

// wait is at least what the other side asked for, plus a share of the window.
func (p *policy) wait(l *loss, next step) time.Duration {
	return add(l.retryAfter, scale(p.window(l, next), p.random()))
}

func (p *policy) window(l *loss, next step) time.Duration {
	w := window(linkBackoffBase, linkBackoffCap, p.attempt)
	if l.kind != lossClosed {
		return w
	}
	switch l.code {
	case closeMoved, closeToken:
		if p.attempt == 0 {
			return 0 // the session waits elsewhere already, or only a token is missing
		}
		return w
	case websocket.StatusTryAgainLater, websocket.StatusServiceRestart:
		overloaded := l.code == websocket.StatusTryAgainLater
		if next == stepReconnect && (overloaded || p.signalingOnly) {
			return max(w, plannedWindow)
		}
		return w
	default:
		if p.signalingOnly && l.opened {
			return max(w, lostWindow)
		}
		return w
	}
}
