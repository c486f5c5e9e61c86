package signaling

import "time"

// codeRateLimited is the code of the error frame that answers a frame above the rate.
const codeRateLimited = "rate_limited"

// pace says how fast tokens come back, and how many a bucket holds.
type pace struct {
	rate  float64 // a second
	burst float64
}

// bucket is a token bucket. The zero value is full when it is first used.
type bucket struct {
	tokens float64 // below zero: owed
	at     time.Time
}

// refill returns the bucket as it is now.
func (p pace) refill(b bucket, now time.Time) bucket {
	if b.at.IsZero() {
		return bucket{tokens: p.burst, at: now}
	}
	back := p.rate * max(0, now.Sub(b.at).Seconds())
	return bucket{tokens: min(p.burst, b.tokens+back), at: now}
}

// maxAnswered is the longest frame above the rate that is parsed for its id.
const maxAnswered = 4 << 10

// topicsPerToken is how many topics of one frame cost as much as a frame.
const topicsPerToken = 8

// paced takes a token for a frame of the client, before the frame costs anything else. Without one the frame is answered and
// changes nothing, but is owed; a client that owes a whole burst does not listen, and is closed. It may come back: a link
// that stalled delivers at once what was sent over minutes, which is nobody's bug.
func (p *peer) paced(message []byte) bool {
	limit := p.pace()
	p.tokens = limit.refill(p.tokens, time.Now())
	p.tokens.tokens--
	if p.tokens.tokens >= 0 {
		return true
	}
	var req request
	if len(message) <= maxAnswered {
		req, _ = parse(message) // because it is not looked at any further
	}
	if req.kind == typeBye {
		return true
	}
	p.count("limited")
	if p.tokens.tokens < -limit.burst {
		p.sender.close(CloseTryLater, reasonTooMany)
		return false
	}
	p.sender.send(encode(errorFrame{
		Type: typeError, Code: codeRateLimited, Message: "too many frames: this one was ignored", ReplyTo: req.id,
	}))
	return false
}

// charge takes tokens for what a frame costs besides: a topic that is subscribed to is a row in the database.
func (p *peer) charge(req request) {
	p.tokens.tokens -= float64(len(req.wishes) / topicsPerToken)
}

func (p *peer) pace() pace {
	return pace{rate: p.hub.config.FrameRate, burst: float64(p.hub.config.FrameBurst)}
}
