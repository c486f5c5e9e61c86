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
	// Capacity is what the survivors take per second: their limit of handshakes, or what the machine did when the same clients
	// came at first with nothing else going on, whichever is less. There each placed its peer and connected, which is about
	// what a rejoin and a handshake are.
	Capacity float64 `json:"capacity_per_s"`
	ClearsS  float64 `json:"clears_s"`
}

// newModel is that of lost clients that survivors take, each of them at most limit handshakes per second, and all together
// at most measured.
func newModel(lost, survivors, limit int, measured float64) Model {
	m := Model{Lost: lost, WindowS: lostWindow.Seconds(), Capacity: min(float64(survivors*limit), measured)}
	m.Arrivals = float64(lost) / m.WindowS
	m.ClearsS = max(m.WindowS, float64(lost)/m.Capacity)
	return m
}
