// Command centrifuge is a small server on the centrifuge library, the nearest thing to Berth's topics: WebSocket clients that
// subscribe to channels, a broker between processes, and an HTTP endpoint to publish at. `berth bench connections` and
// `berth bench fanout` put it beside Berth.
//
// It has the library's defaults but for what must be alike on both sides: pings come as often, compression is off, clients
// need no credentials and may subscribe to any channel. -lean switches on what the library offers against idle
// connections' memory. With CENTRIFUGE_REDIS_URL processes share the library's Redis broker, otherwise messages stay within
// the process.
//
// It is a module of its own, so that nothing else needs the library.
package main
