// Package failover measures how fast Berth notices that a worker is gone, what it takes for gone that is not, and what
// watching costs, for each of its detectors.
//
// # The fleet
//
// A scene is a fleet of real processes of the same binary on a database of its own: `berth api` and `berth worker`, by
// default two and three. Calls (kind call) stand on it, each with two WebSocket clients that negotiate with a dummy SDP.
// Faults are signals: SIGKILL, and SIGSTOP with SIGCONT.
//
// # Clocks
//
// All times are read from the monotonic clock of this process: when it sent the signal, when a log line of an API
// process arrived on its pipe, when a frame arrived on a socket. What the machine needs to schedule this process is part
// of every number.
//
// # What is measured
//
//   - kills: from SIGKILL to the first line gap_opened of the instance (gap), from there to loss_confirmed (confirm), and
//     from SIGKILL to the frame peer-disconnected of each survivor (notified). A survivor is a peer whose own worker
//     lives and whose partner's was killed. Between kills the worker is started again and the calls are made whole.
//   - leaders: the same while an API process is killed or stopped at that moment: the one that leads River, the one that
//     is the sentinel, or one that is both.
//   - many: two workers at once, and a worker with thousands of calls, while another tenant starts sessions.
//   - pauses: a worker is stopped for a while. False positives are losses confirmed. A session is lost if its row left the
//     live states, a socket was closed, or what its peers say does not come through within 2 s of waking.
//   - cost: the duration of ticks and looks, as the difference of scrapes of the metrics, at a number of calls, and for
//     presence at rows only: sessions whose workers are locks held by this process.
//   - lengths: detection by presence and by lease at several lengths of the lease.
//   - article: detection and cost with the article's numbers: three instances, ticks of 5 s, a confirmation one tick
//     later, leases of 6 s, no sentinel, and a walk over every session in each look.
//
// # Collateral
//
// Over all faults it is counted what should not have happened: wrongly dropped (a socket closed, a peer told of a loss, or
// a worker declared lost that no fault was about), acted twice (a second verdict on an instance, or a second notice to a
// survivor), left uncleaned (calls, peers, gaps and invariants that are not in order once all are back).
// The losses that pauses cause are counted with the pauses, and not here.
//
// # What is not promised
//
// Everything shares the cores of one machine, so the numbers are upper bounds for the protocol and say nothing about a
// network.
package failover
