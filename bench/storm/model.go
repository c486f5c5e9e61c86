package storm

import "time"

// lostWindow is within which clients of calls come back that lost an open connection: the first window of the SDK's backoff,
// and of the article's.
const lostWindow = 4 * time.Second

// Model is the article's arithmetic of a storm: clients that wait for a random part of one window arrive evenly over it, so
// the storm takes as long as the window, or as long as the survivors need for so many handshakes, whichever is longer.
//
//	50,000 clients / 4 s = 12,500 per second, under the 14,000 per second of seven nodes: about four seconds.
//
// Source: "Scaling WebSocket servers, in depth", reconnect storms, worked through.
type Model struct {
	Lost     int     `json:"lost"`
	WindowS  float64 `json:"window_s"`
	Arrivals float64 `json:"arrivals_per_s"` // lost / window
	// Capacity is what the survivors take per second: the limits of handshakes of all workers and of rejoins of all API
	// processes, or what the machine did when the same clients came at first with nothing else going on, whichever is least.
	// There each placed its peer and connected, which is about what a rejoin and a handshake are.
	Capacity float64 `json:"capacity_per_s"`
	ClearsS  float64 `json:"clears_s"`
}

// newModel is that of lost clients, of which so many handshakes and rejoins per second are let in, and so many were measured.
func newModel(lost, handshakes, rejoins int, measured float64) Model {
	m := Model{Lost: lost, WindowS: lostWindow.Seconds(), Capacity: min(float64(handshakes), float64(rejoins), measured)}
	m.Arrivals = float64(lost) / m.WindowS
	m.ClearsS = max(m.WindowS, float64(lost)/m.Capacity)
	return m
}
