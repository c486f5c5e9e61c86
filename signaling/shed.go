package signaling

import (
	"math/rand/v2"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// minShedWait is the least that a client which was shed waits, so that nobody comes back in the moment of a move.
const minShedWait = 500 * time.Millisecond

// Shed closes connections of calls with 1012, so that their clients move to other workers, and returns how many it will.
// They are chosen at random, since the oldest are often those of the users who matter most, and close one by one over
// order.Spread. Media stays where it is. A connection that ends by itself meanwhile is one less. Orders add up; where only
// those are left that are to leave anyway, some of them leave sooner.
func (h *Hub) Shed(order berth.ShedOrder) (shed int) {
	for _, p := range h.movable() {
		if shed == order.Count {
			break
		}
		if p.shedAfter(time.Duration(rand.Int64N(int64(max(order.Spread, 1))))) {
			shed++
		}
	}
	return shed
}

// movable lists the connections of calls in the order in which they are to be sent away: at random, and those last that are
// told to leave already.
func (h *Hub) movable() []*peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	var free, leaving []*peer
	for _, s := range h.sessions {
		if s.call == nil {
			continue
		}
		for _, p := range s.peers {
			if p.leaving() {
				leaving = append(leaving, p)
			} else {
				free = append(free, p)
			}
		}
	}
	for _, some := range [][]*peer{free, leaving} {
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	}
	return append(free, leaving...)
}

// shedReason tells one client when to come back.
func shedReason() string {
	return retryAfter(minShedWait + time.Duration(rand.Int64N(int64(berth.ShedWindow-minShedWait))))
}

func (p *peer) leaving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shed != nil
}

// shedAfter has the connection leave after a wait, and reports whether it would not have left by then.
func (p *peer) shedAfter(wait time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Now().Add(wait)
	if p.stopped || p.shed != nil && (p.shedAt.Before(at) || !p.shed.Stop()) {
		return false
	}
	p.shed, p.shedAt = time.AfterFunc(wait, p.sendAway), at
	return true
}

// sendAway takes the peer's seat in the database and then closes its connection, so that its next connection here is refused
// with 4410 and its rejoin is placed where there is less to do. While the database does not answer the peer stays.
func (p *peer) sendAway() {
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	p.moved = true
	p.mu.Unlock()
	gone := p.gone(p.session.held)
	gone.Shed = true
	gone.told = p.sentAway
	p.hub.settler.disconnect(gone)
}

// sentAway goes on once the database was asked to take the seat.
func (p *peer) sentAway(err error) {
	if err == nil {
		p.hub.metrics.shed.Inc()
		p.sender.close(CloseRestart, shedReason())
		return
	}
	p.mu.Lock()
	p.moved, p.shed = false, nil
	ended := p.stopped
	p.mu.Unlock()
	if ended { // meanwhile, and left the word to this one
		p.hub.settler.disconnect(p.gone(p.session.held))
	}
}
