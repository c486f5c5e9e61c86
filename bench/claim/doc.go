// Package claim measures what it costs to place a session: by Berth with all that it promises, and by the ways that
// people place sessions without it, on the same machine, in one run.
//
// # What is measured
//
// A subject is one way to place. Each is an HTTP server in a process of its own, started from the same binary: `berth
// api`, or a front of package front. Berth is the real thing: it checks an API key, places durably in Postgres under
// quota and region rules, and answers with tokens. See Subjects for the list.
//
// A run has rounds; each round measures every subject once, and the order turns by one from round to round, so that no
// subject always comes first. Numbers that are reported are medians over the rounds, each of them alone.
//
// # What is equal
//
// Each measurement has its own fresh state: a copy of a prepared database, or an empty Redis with the servers filled
// in. The same requests come over the same number of kept-alive connections. Every store is reached over TCP on
// loopback. Postgres runs with its own defaults for durability: fsync and synchronous_commit are on. Redis writes
// nothing to disk at all, which is the best that can be said for its speed.
//
// # What is checked
//
// Every answer has the status that it should, or there is no result. After a measurement the store is asked how many
// sessions it holds: that must be the number of answers. Berth's own view of broken invariants must be empty.
//
// # Workers
//
// Berth gives work only to workers that are present and renew their leases. A fleet stands for them: one connection
// holds the presence locks of all, and another renews every lease each second. No worker process runs, so that none
// competes with what is measured.
//
// # What is not promised
//
// Load generator, server and store share the cores, so that a subject that needs less of any of them looks better, as
// in production on one machine. The columns of CPU time say which of the three a subject spends. They come from
// /proc, in steps of 10 ms; where there is none they are zero.
package claim
