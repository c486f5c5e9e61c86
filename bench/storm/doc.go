// Package storm measures what happens when many clients lose their worker at once, and when they are told to go.
//
// # The fleet and its clients
//
// A case is a fleet of real processes of the same binary on a database of its own: `berth api` and `berth worker`, by default
// two and three. Clients are peers of calls, two to each, placed as any client is. Each is the Go SDK's own connection
// (sdk/go), without media: its backoff, its choice between the same URL and a rejoin, and its resumption of topics are what
// is measured, all in one process. Each listens to one topic. A witness has a process of its own: for each topic a client that
// publishes steadily and some that hear it, all on workers that nobody leaves.
//
// # The cases
//
//   - kill: SIGKILL of one of the workers.
//   - expired: the same, but every client takes its token for expired once it lost its connection, as after ten minutes, so
//     that all of them need a rejoin before they may connect. The dead worker would be the one to verify the old token, so
//     what the token itself says makes no difference.
//   - no_jitter: the same as kill, but clients wait for the whole of each window of the same backoff.
//   - drain: one worker has all clients, the others come to have room, and it is drained.
//   - shed: a worker is added, and each of the others is ordered to shed what it has above the mean.
//
// # What is measured
//
// Everything is read from the clock of the machine. A client is back when it was welcomed. Round trips are from the moment at
// which a publisher was to send to the moment at which a client of the witness heard it: before and until all are back. Answers
// are from a frame that a client of the witness sends to what its worker says to it without the database. Offsets of a topic
// are dense, so each client sees by itself whether it missed or doubled a message over all its connections; at the end it must
// have all that was published.
//
// The model is the article's arithmetic, see [Model].
//
// # What is not promised
//
// Clients, workers, API processes and Postgres share the cores of one machine, and a rejoin comes over loopback without TLS.
// So read ratios rather than rates. In a storm of a thousand clients and more they run only when no server and no witness wants
// the core, if the process may do so (clients_gave_way); see [lab.GiveWay]. What they note is late then: that they are back,
// for one. What the witness sees is not.
package storm
