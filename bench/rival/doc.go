// Package rival runs the server of bench/centrifuge for harnesses that put Berth beside the centrifuge library: processes,
// their Redis, clients that speak its JSON protocol, and a publisher.
package rival
