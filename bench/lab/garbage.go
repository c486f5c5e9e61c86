package lab

import "runtime/debug"

// clientMemory is what a process may take before it collects garbage, in bytes.
const clientMemory = 4 << 30

// CollectRarely keeps this process, which is all of the clients, from collecting garbage until it needs the room: on a machine
// that they share with the servers, their collections last for hundreds of milliseconds, and would be read as the servers'
// latency. It returns what ends that.
func CollectRarely() (end func()) {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(clientMemory)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}
