// Package load calls something as fast as its answers come, and measures how long they take.
//
// The loop is closed: a caller sends its next request when the last one is answered, so that the number of callers is
// the number of requests in flight, and a slow server is asked less often rather than buried. Latencies are those of
// answered calls. A closed loop does not show the queue that an open one would build; compare throughputs first.
//
// The generator shares the machine with what it measures. So it is cheap: one goroutine and one connection per caller,
// requests written from one buffer, answers read without a map of headers, one look at the clock per call.
//
// Nothing unexpected is averaged away: a caller stops at its first error, and a run with an error has no result.
package load
