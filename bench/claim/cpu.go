package claim

import "time"

// cpuReading is the CPU time of the processes of a measurement, since each began.
type cpuReading struct {
	server, store, load time.Duration
}

func (r cpuReading) since(before cpuReading) cpuReading {
	return cpuReading{r.server - before.server, r.store - before.store, r.load - before.load}
}
