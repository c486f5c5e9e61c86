package media

import (
	"context"
	"fmt"
	"time"

	"github.com/pion/webrtc/v4"
)

// This file is what the session's goroutine does with a peer's connection.

// Names of a peer's timers.
const (
	timerGather  = "gather"
	timerConnect = "connect"
	timerAnswer  = "answer"
)

// connect makes the connection of the peer and its handler. On failure the connection may be there and
// is closed with the peer.
func (p *Peer) connect() error {
	pc, err := p.session.engine.stack.connect(newRoamer())
	if err != nil {
		return err
	}
	p.pc = pc
	if p.handler, err = p.session.handler.Attach(p); err != nil {
		return fmt.Errorf("%w: attach: %w", ErrHandler, err)
	}
	pc.OnICECandidate(func(c *webrtc.ICECandidate) { p.onPion(pc, func() { p.localCandidate(c) }) })
	pc.OnConnectionStateChange(func(webrtc.PeerConnectionState) { p.onPion(pc, p.syncState) })
	pc.OnTrack(func(t *webrtc.TrackRemote, r *webrtc.RTPReceiver) {
		p.onPion(pc, func() { p.startTrack(t, r) })
	})
	pc.OnDataChannel(func(dc *webrtc.DataChannel) {
		dc.OnOpen(func() { p.onPion(pc, func() { p.startChannel(dc) }) })
	})
	return nil
}

// onPion enqueues what a callback has to do. Callbacks of a connection that was replaced are dropped.
func (p *Peer) onPion(pc *webrtc.PeerConnection, op func()) {
	p.session.postFor(p, func() {
		if p.pc == pc {
			op()
		}
	})
}

// applyOffer answers an offer. The answer is sent when the candidates are known, or soon after.
func (p *Peer) applyOffer(desc *description, answer func(string, error)) error {
	if p.pc.SignalingState() == webrtc.SignalingStateHaveLocalOffer {
		return ErrGlare
	}
	p.sendAnswer() // an earlier one that still waits: the order of answers is that of offers
	if p.started.IsZero() {
		p.started = time.Now()
	}
	p.trickle = false
	if err := p.answerOffer(desc); err != nil {
		return p.recoverOffer(err)
	}
	p.answer = answer
	if !p.negotiated {
		p.negotiated = true
		p.after(timerConnect, p.session.engine.cfg.ConnectTimeout, func() {
			p.fail("connect_timeout", ErrConnectTimeout)
		})
	}
	p.addEarlyCandidates(desc)
	if p.pc.ICEGatheringState() == webrtc.ICEGatheringStateComplete {
		p.sendAnswer()
	} else {
		p.after(timerGather, gatherWait, p.sendAnswer)
	}
	return nil
}

// answerOffer applies the offer, asks the handler and applies the answer.
func (p *Peer) answerOffer(desc *description) error {
	offer := webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: desc.raw}
	if err := p.pc.SetRemoteDescription(offer); err != nil {
		return badSDP("the offer does not fit the connection")
	}
	p.remote = desc
	if err := p.handler.Negotiate(p.ctx, &Negotiation{peer: p}); err != nil {
		return fmt.Errorf("%w: negotiate: %w", ErrHandler, err)
	}
	options := &webrtc.AnswerOptions{}
	options.ICETricklingSupported = true
	answer, err := p.pc.CreateAnswer(options)
	if err != nil {
		return badSDP("the offer cannot be answered")
	}
	if err := p.pc.SetLocalDescription(answer); err != nil {
		return badSDP("the answer to the offer does not fit the connection")
	}
	return nil
}

// recoverOffer makes up for Pion's lack of a rollback after an offer that failed halfway.
func (p *Peer) recoverOffer(cause error) error {
	if p.negotiated {
		if p.pc.SignalingState() != webrtc.SignalingStateStable {
			p.fail("negotiation", cause)
		}
		return cause
	}
	old := p.pc
	p.spawn("replace", func() error { p.closeConnection(old); return nil })
	p.remote, p.needOffer = nil, false
	if err := p.connect(); err != nil {
		p.fail("negotiation", err)
	}
	return cause
}

// sendAnswer sends the answer that waits for candidates, if one does. What is found later is an event.
func (p *Peer) sendAnswer() {
	if p.answer == nil {
		return
	}
	p.stopTimer(timerGather)
	p.trickle = p.pc.ICEGatheringState() != webrtc.ICEGatheringStateComplete
	p.reply(p.pc.LocalDescription().SDP, nil)
	if err := p.offerIfNeeded(); err != nil {
		p.fail("negotiation", err)
	}
}

func (p *Peer) reply(sdp string, err error) {
	if answer := p.answer; answer != nil {
		p.answer = nil
		answer(sdp, err)
	}
}

// offerIfNeeded makes the server's offer when the connection is free for it.
func (p *Peer) offerIfNeeded() error {
	if !p.needOffer || !p.negotiated || p.answer != nil || p.pc.SignalingState() != webrtc.SignalingStateStable {
		return nil
	}
	p.needOffer = false
	options := &webrtc.OfferOptions{}
	options.ICETricklingSupported = true
	offer, err := p.pc.CreateOffer(options)
	if err != nil {
		return fmt.Errorf("media: create offer: %w", err)
	}
	if err := p.pc.SetLocalDescription(offer); err != nil {
		return fmt.Errorf("media: apply own offer: %w", err)
	}
	p.trickle = true
	p.events.Offer(p.pc.LocalDescription().SDP)
	p.after(timerAnswer, answerTimeout, func() { p.fail("answer_timeout", ErrAnswerTimeout) })
	return nil
}

// applyAnswer completes an offer of the server, unless the answer could not be read. That nobody asked says more than
// what is wrong with it.
func (p *Peer) applyAnswer(desc *description, unreadable error) error {
	if p.pc.SignalingState() != webrtc.SignalingStateHaveLocalOffer {
		return ErrNoOffer
	}
	if unreadable != nil {
		return unreadable
	}
	answer := webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: desc.raw}
	if err := p.pc.SetRemoteDescription(answer); err != nil {
		err = badSDP("the answer does not fit the offer")
		if p.pc.SignalingState() != webrtc.SignalingStateHaveLocalOffer {
			p.fail("negotiation", err)
		}
		return err
	}
	p.stopTimer(timerAnswer)
	p.addEarlyCandidates(desc)
	return p.offerIfNeeded()
}

func (p *Peer) addEarlyCandidates(desc *description) {
	for _, c := range p.candidates.describe(desc.ufrags) {
		if err := p.pc.AddICECandidate(c.toPion()); err != nil {
			p.log.Debug("media early candidate dropped", "err", ErrBadCandidate)
		}
	}
}

func (p *Peer) addCandidate(c Candidate) error {
	now, err := p.candidates.admit(c)
	if err != nil || !now {
		return err
	}
	if err := p.pc.AddICECandidate(c.toPion()); err != nil {
		return fmt.Errorf("%w: not readable as a candidate (RFC 8839 section 5.1)", ErrBadCandidate)
	}
	return nil
}

// localCandidate handles a candidate of ours, or nil at the end.
func (p *Peer) localCandidate(c *webrtc.ICECandidate) {
	switch {
	case p.trickle && c == nil:
		p.trickle = false
		p.events.Candidate(nil)
	case p.trickle:
		p.events.Candidate(fromPion(c.ToJSON()))
	case c == nil:
		p.sendAnswer()
	}
}

// syncState takes over the connection's state. Pion calls back in goroutines of their own, so the order of
// calls means nothing; only the current state counts.
func (p *Peer) syncState() {
	state := p.pc.ConnectionState()
	switch state {
	case webrtc.PeerConnectionStateConnected:
		p.becomeConnected()
	case webrtc.PeerConnectionStateDisconnected:
		p.change(StateDisconnected)
	case webrtc.PeerConnectionStateFailed:
		if p.state != StateFailed {
			p.session.engine.metrics.failed.WithLabelValues("ice").Inc()
		}
		p.change(StateFailed)
	case webrtc.PeerConnectionStateClosed:
		p.cancel(ErrLeft)
	default: // new or connecting again, after an ICE restart
	}
}

func (p *Peer) change(state PeerState) {
	if p.state != state {
		p.report(state)
	}
}

func (p *Peer) becomeConnected() {
	p.stopTimer(timerConnect)
	if !p.running {
		p.running = true
		p.session.engine.metrics.connect.Observe(time.Since(p.started).Seconds())
		handler := p.handler
		p.spawn("run", func() error {
			err := handler.Run(p.ctx)
			if err != nil && p.ctx.Err() == nil {
				p.fail("handler", fmt.Errorf("%w: run: %w", ErrHandler, err))
			}
			return err
		})
	}
	p.change(StateConnected)
}

// startTrack gives a track of the client to the handler.
func (p *Peer) startTrack(remote *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
	t := &Track{remote: remote, pc: p.pc, traffic: &p.session.traffic}
	if transceiver := receiver.RTPTransceiver(); transceiver != nil {
		t.mid = transceiver.Mid()
	}
	handler := p.handler
	p.spawn("track", func() error { return handler.Track(p.ctx, t) })
	p.spawn("reports", func() error { readReports(receiver); return nil })
}

// readReports reads the client's RTCP until the track ends: interceptors see only what somebody reads.
func readReports(receiver *webrtc.RTPReceiver) {
	buf := make([]byte, packetBytes)
	for {
		if _, _, err := receiver.Read(buf); err != nil {
			return
		}
	}
}

// startChannel gives a data channel of the client to the handler.
func (p *Peer) startChannel(dc *webrtc.DataChannel) {
	if p.channels.Load() >= maxChannels {
		p.log.Debug("media data channel refused", "limit", maxChannels)
		_ = dc.Close()
		return
	}
	c, err := newChannel(p.pc, dc, &p.session.traffic)
	if err != nil {
		p.log.Debug("media data channel dropped", "err", err)
		return
	}
	p.channels.Add(1)
	handler := p.handler
	p.spawn("channel", func() error {
		defer p.channels.Add(-1)
		return c.serve(p.ctx, func(ctx context.Context, c *Channel) error { return handler.Channel(ctx, c) })
	})
}
