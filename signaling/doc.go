// Package signaling is the WebSocket side of a worker: it admits peers to the sessions that the worker owns, carries
// their offers, answers and candidates to the media engine and back, and tells each peer about the others.
//
// # Who is authoritative
//
// The database owns sessions; a [Hub] is a cache of those that this worker serves, with the sockets on top. A peer is
// admitted by a write that names the session's generation ([Directory]), before its welcome is sent. Whatever the
// hub believes wrongly is found by the next renewal, which compares [Hub.Held] with the database.
//
// # Life of a connection
//
//	upgrade --refused by HTTP status: rate of the address and the process, origin, draining, too many
//	   |
//	   +--> joining --refused by close code: token, generation, ended, in doubt, database away
//	           |
//	           +--> connected: welcome, then frames both ways
//	                   |
//	                   +--> closing: the close frame is queued last; a grace later the connection is cut
//
// Joins of one session happen one after the other, so the hub and the database agree on which connection of a peer is
// the newest. The newest wins; the older one is closed with [CloseReplaced].
//
// # Life of a session
//
// A session is held from before its first join is written until its end is acknowledged by the database, because
// between the two the database may count it as served here: it ends what a renewal lacks as forgotten. It leaves the
// hub when
//
//   - its last peer says bye, no peer was connected for its idle timeout, or its time to live passed: the hub asks
//     the database to end it and repeats that until answered;
//   - the worker says so ([Hub.Drop]): the session ended by somebody else's order, or moved, or the worker lost its
//     right to it.
//
// Clients that are told to come back find their session: it stays held after a join that may be repeated, and after the
// worker gave it up by itself ([Fate].Return).
//
// # What happens on failure
//
//   - A reader that is too slow is closed with 1013 once its queue passes a limit of bytes or age. The queue is
//     dropped, so that the close frame is the next frame it sees.
//   - A client that sends nothing, not even an application pong, is closed with 1013: a proxy may answer protocol
//     pings for a page that is gone.
//   - A paused process does not punish its clients: every deadline here counts from the later of its start and the
//     last waking ([Config].Awake).
//   - A well-formed but wrong frame is answered by an error frame. What no client of this protocol would send closes
//     the connection; see closecode.go.
//   - A join that the database answers when the hub no longer admits it is refused; the database is told that it is
//     gone.
//   - A panic while a client is served ends its connection with 1013, and no other.
//
// # Concurrency
//
// Hub.mu guards all bookkeeping and is never held during a call to the directory, the media engine or a socket. Lock
// order: Hub.mu or peer.mu, then sender.mu; [Config].Awake may be asked under any of them. A connection has one
// goroutine, which waits for something to read. The join runs in another; messages are handled, one at a time, and frames
// written in those of a crew that all connections share, so that an idle connection keeps no deep stack. The hub waits for
// all of them in [Hub.Close]. Timers only look at the books and enqueue; one that fires late finds its cause gone.
//
// # Not promised
//
// Frames are not kept for a peer that is away. Media of a peer ends with its connection, and a new one negotiates anew:
// a connection that took the old one's media over would have to fence its reader first, and the client would have to
// prove that it kept its end.
package signaling
