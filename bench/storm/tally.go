package storm

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"
)

// pointEvery is between two points of a curve.
const pointEvery = 100 * time.Millisecond

// span is what a case is about: who was to lose a connection, and when.
type span struct {
	from  time.Time // the round trips before begin
	fault time.Time // the kill, or the order
	ended time.Time // everybody was back, or is given up
	gone  string    // the worker that is killed or drained; empty: none
}

// tally makes a case of what happened to a crowd, and of what a witness saw.
func tally(name string, c *crowd, s span, w witnessed) Case {
	k := Case{
		Name: name, Clients: len(c.listeners), Filled: c.filled, Failed: w.Failed, OthersLost: w.Lost,
		Codes: map[string]int{}, Ways: map[string]int{}, Refusals: map[string]int{},
	}
	var away, attempts []float64
	timeline := map[int]*Point{}
	heard := w.Count
	for _, l := range c.listeners {
		heard.add(l)
		r := follow(l.trace.since(s.fault))
		if r.lostAt.IsZero() {
			continue
		}
		k.add(r, s, l)
		attempts = append(attempts, float64(r.attempts))
		if !r.backAt.IsZero() {
			away = append(away, r.backAt.Sub(r.lostAt).Seconds())
		}
		r.mark(timeline, s.fault)
	}
	k.Messages, k.Missed, k.Partial = heard.Messages, heard.Missed, heard.Partial
	k.Away, k.Attempts = newDistribution(away), newDistribution(attempts)
	k.RoundTrip, k.Answer = s.roundTrip(w.RoundTrips), s.roundTrip(w.Answers)
	k.draw(timeline)
	return k
}

// roundTrip compares what was before the fault with what was since.
func (s span) roundTrip(latencies []latency) RoundTrip {
	early := s.fault.Add(5 * time.Second)
	return newRoundTrip(between(latencies, s.from, s.fault), between(latencies, s.fault, early), between(latencies, s.fault, s.ended))
}

// wayBack is one client's way back.
type wayBack struct {
	lostAt, backAt time.Time // zero: did not happen
	code           int       // by which it was lost
	why            string    // it was, without a close frame
	attempts       int
	rejoined       bool
	refusals       []string
	failedAuth     int
	events         []event
}

// follow reads the way back from what happened to a client; the last loss counts if there were several.
func follow(events []event) (w wayBack) {
	for _, e := range events {
		switch e.what {
		case lost:
			if w.lostAt.IsZero() {
				w.lostAt, w.code, w.why = e.at, e.code, e.why
			}
			w.backAt = time.Time{}
		case back:
			w.backAt = e.at
		case dialed, asked:
			w.attempts++
			w.rejoined = w.rejoined || e.what == asked && e.code == http.StatusOK
			w.refuse(e)
		case refused:
			w.refuse(e)
		case over:
			w.refusals = append(w.refusals, "gave up")
		}
	}
	w.events = events
	return w
}

// noAnswer ends what is said of requests to a worker that is dead, or too busy.
const noAnswer = ": no answer"

// sentOn is what is said of a handshake with a worker that the client was moved from.
const sentOn = "close: 4410"

// refuse notes an answer that was a refusal.
func (w *wayBack) refuse(e event) {
	switch {
	case e.code == http.StatusUnauthorized, e.code == http.StatusForbidden, e.code == 4401:
		w.failedAuth++
	case e.what != refused && e.code < 300:
		if e.code == 0 {
			w.refusals = append(w.refusals, e.kind()+noAnswer)
		}
		return
	}
	w.refusals = append(w.refusals, e.kind()+": "+strconv.Itoa(e.code))
}

// kind is what a request was, or a close.
func (e event) kind() string {
	switch e.what {
	case asked:
		return "rejoin"
	case dialed:
		return "handshake"
	default:
		return "close"
	}
}

// add counts one client that lost its connection.
func (c *Case) add(w wayBack, s span, l *listener) {
	c.Lost++
	c.Codes[strconv.Itoa(w.code)]++
	if c.Planned() && w.why != "" {
		c.Broken = append(c.Broken, fmt.Sprintf("after %.1f s: %s", w.lostAt.Sub(s.fault).Seconds(), w.why))
	}
	if s.gone != "" && l.home != s.gone {
		c.OthersLost++
	}
	c.FailedAuth += w.failedAuth
	for _, r := range w.refusals {
		c.Refusals[r]++
	}
	if w.backAt.IsZero() {
		return
	}
	c.Back++
	if l.worker() != l.home {
		c.Moved++
	}
	c.ClearedS = max(c.ClearedS, w.backAt.Sub(s.fault).Seconds())
	c.ResumedS = max(c.ResumedS, l.heard.told().Sub(s.fault).Seconds())
	way := "same URL"
	if w.rejoined {
		way = "rejoin"
	}
	c.Ways[way]++
}

// mark puts a client's way back on the timeline.
func (w wayBack) mark(timeline map[int]*Point, from time.Time) {
	point := func(at time.Time) *Point {
		i := int(at.Sub(from) / pointEvery)
		if timeline[i] == nil {
			timeline[i] = &Point{}
		}
		return timeline[i]
	}
	for _, e := range w.events {
		if (e.what == dialed || e.what == asked) && e.code != 0 {
			point(e.made).Requests++
		}
		switch {
		case e.what == back:
			point(e.at).Back++
		case e.what == dialed && e.code == http.StatusSwitchingProtocols:
			point(e.at).Handshakes++
		case e.what == lost && e.at.After(w.lostAt):
			point(e.at).Back-- // it had been back before
		}
	}
}

// draw makes the curve of the timeline, and what is read off it.
func (c *Case) draw(timeline map[int]*Point) {
	last := 0
	for i := range timeline {
		last = max(last, i)
	}
	sum := 0
	for i := range last + 1 {
		p := Point{S: (time.Duration(i+1) * pointEvery).Seconds()}
		if here := timeline[i]; here != nil {
			sum += here.Back
			p.Handshakes, p.Requests = here.Handshakes, here.Requests
		}
		p.Back = sum
		c.Handshakes += p.Handshakes
		c.Peak = max(c.Peak, float64(p.Handshakes)/pointEvery.Seconds())
		c.Asked = max(c.Asked, float64(p.Requests)/pointEvery.Seconds())
		c.Curve = append(c.Curve, p)
	}
}

// memory is what this process takes, in MiB.
func memory() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys-m.HeapReleased) / (1 << 20)
}
