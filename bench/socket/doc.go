// Package socket is the client side of the harnesses that open thousands of WebSocket connections: cheap enough that the
// servers, and not the harness, are what the machine is busy with.
//
// A [Conn] is one connection: a goroutine reads, anybody writes. It speaks RFC 6455 by itself, since what it costs to read a
// frame counts here. [Join] makes a peer of a Berth call of one, [Conn.Run] reads it to its end and answers pings, and an
// [API] places the peers and publishes.
//
// # Not promised
//
// It is no client for use elsewhere: it checks of the server only what would falsify a measurement.
package socket
