//go:build chaos

package worker

import "time"

// As in scale_test.go, in the size in which these failures were seen.
const (
	slowHandshakes   = 2000
	slowTimeout      = 5 * time.Second
	slowByte         = time.Second
	stoppedSockets   = 500
	reloadedSockets  = 300
	reloadWait       = "5s"
	proxyReadTimeout = 15 * time.Second
	proxyPing        = 10 * time.Second
	proxyWatch       = 5 * time.Minute
)
