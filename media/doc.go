// Package media is the WebRTC side of a worker, built on Pion.
//
// # Model
//
// An [Engine] is one per process. It owns one UDP port (and, as a fallback, the TCP port of the same
// number) that every connection of the process shares; ICE tells the connections apart.
//
// A [Session] has a [Handler], chosen by name when it opens, and any number of [Peer] values, each
// with one peer connection. One goroutine owns a session: it alone touches the state of its peers,
// applies descriptions and delivers events. Everything else, callbacks of Pion included, only
// enqueues. The queue is bounded; when it is full, whoever enqueues waits.
//
// A [Handler] decides what peers see and hear. `echo` sends a peer its own media and messages back,
// `play` shows an embedded clip, and [Config.Handlers] adds others. Handlers work with raw RTP
// packets, whole frames and messages, and need no Pion types.
//
// # States of a peer
//
//	connecting -> connected <-> disconnected
//	any of these -> failed -> closed
//	any of these -> closed
//
// A failed ICE transport reports failed and stays, because an ICE restart may bring it back. Every
// other failure reports failed and then closed. Closed is always the last event of a peer.
//
// # Negotiation
//
// The client offers first. [Peer.Offer] applies the offer, asks the handler what to send, and answers.
// The answer holds the candidates found within 250 ms, which for a worker are all of them; later ones are
// events. A further offer is a renegotiation or an ICE restart; offers are applied in order and the last
// one wins. When a handler adds tracks later, the server offers; if the client's offer crosses it the
// server does not give way (it is the impolite peer) and Offer returns [ErrGlare]: the client rolls
// back, answers, and offers again.
//
// A bad description is found before it reaches the connection, so that the state is unchanged and a good one
// can follow. If one slips through, a peer that has negotiated nothing yet gets a fresh connection and
// a renegotiating peer fails, since Pion cannot roll back.
//
// # Failures
//
// A panic in a handler, in an event or while a peer's message is read or handled fails that peer alone. Closing never
// blocks the caller and takes at most [Config.CloseTimeout]; what is not down by then is abandoned
// and counted. A client that appears at a new source address (NAT rebinding, Wi-Fi to mobile) keeps its
// media: authenticated checks from the new address move the connection there once the old one is silent.
//
// # Not promised
//
// Addresses that appear on the host after New are not used when Listen names none. Names ending in .local
// are never resolved. Connectivity checks go to every address that a client names as its candidate, private ones
// included, since clients on the same network have no other: whoever holds a token can have the worker send such checks,
// which only UDP carries. The timers of this package do not start anew after the process was paused. Session descriptions, candidates and payloads are never logged by this package.
package media
