// Package fanout measures what it costs to bring messages of topics to the clients of several processes, beside the centrifuge
// library with its Redis broker.
//
// # Systems
//
// Berth is one `berth api`, some `berth worker` and a Postgres; centrifuge is as many servers of bench/centrifuge and a Redis.
// Clients are connections of this process, and publishers too: they ask Berth's API process, or centrifuge's processes in
// turn, over HTTP. Nobody compresses, and pings come as often. Berth keeps the messages of topics and numbers them, which
// cannot be switched off. The library does so on demand: by default it is measured without, its cheapest way
// ([Config].History).
//
// # Loads
//
//   - large: one topic with many members on all processes.
//   - pairs: many topics with two members each. A call places each of its two peers by itself, so that most topics are on two
//     processes; for centrifuge the processes are drawn at random, which comes to the same.
//
// # What is measured
//
// A message says when it was published: just before the request was sent. Members say when it came; the clock is this machine's.
// Within a window of steady load, after a warm-up:
//
//   - writes: messages that came to members. One member, one message, one write.
//   - received: messages that the backplane told all processes of (berth_backplane_received_total; the library's
//     messages_received_count), each a payload to parse. delivered: those for which the process had a member
//     (berth_backplane_delivered_total; the library has no such number, so that it is computed from where the members are).
//   - broadcast: what would be received if each message went to each process. It is computed: messages times processes.
//   - CPU: utime and stime of all server processes, without and with those of Postgres or Redis.
//   - wake-ups: how often the processes of Postgres or Redis stopped waiting (voluntary_ctxt_switches); of these the
//     listeners' backends, which NOTIFY wakes.
//
// Systems take turns, so that no drift of the machine favors one, and medians are reported.
//
// # What is not promised
//
// Clients, publishers and servers share the cores of one machine: latencies are upper bounds, and say nothing of a network.
package fanout
