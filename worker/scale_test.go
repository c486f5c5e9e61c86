//go:build !chaos

package worker

import "time"

// How large the tests of many sockets are, and how slow their proxies, in every run.
const (
	slowHandshakes   = 200
	slowTimeout      = 500 * time.Millisecond
	slowByte         = 20 * time.Millisecond
	stoppedSockets   = 100
	reloadedSockets  = 60
	reloadWait       = "500ms"
	proxyReadTimeout = time.Second
	proxyPing        = 250 * time.Millisecond
	proxyWatch       = 4 * time.Second
)
