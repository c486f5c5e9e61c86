// Package backplane carries messages of topics between processes, over Postgres alone: LISTEN/NOTIFY wakes and carries
// small bodies, tables have the truth.
//
// [Bus] is the real one, and [Cluster] is several of them, for more topics than one database carries. [Memory] is their twin of
// one process. The same tests run on all. Consumers declare the few methods that they need.
//
// # Who is authoritative
//
// A topic is a row with an epoch and the next offset, and a log of its last messages. berth.publish takes offsets under
// the row's lock, so offsets are dense, and they are told in their order. Everything a process holds is a copy: a
// [Position] up to which its subscribers were served. What the process is told either continues the position, or is known
// already, or shows that something is missing; then the log is read. So a notification may be lost, doubled or late.
//
// The tables are unlogged: a publish waits for no flush, and after a crash or a failover of the database they are empty. A
// topic that is made anew has another epoch, a random UUID, so an offset never means two messages.
//
// # How a message goes
//
//	Publish -> a queue for each sender, in turns -> one statement per batch, one batch in flight: berth.publish
//	   -> log, and one packed NOTIFY per interested process: channel berth_p_<process>
//	   -> listener: drains its connection into memory, does nothing else
//	   -> dispatcher: parses; what continues its topic's position is delivered
//	   -> reader: what does not, and bodies that went by table, it reads from the log, many topics in one statement
//	Subscribe with a position -> historian: reads the log for all who ask at the time, and they share what they want alike
//
// A topic is served by the dispatcher or by the reader, never by both at once: the reader leaves a topic alone while a message
// of it is being delivered. So the messages of a topic are delivered one after the other, in order.
//
// What a subscriber is given begins with an opening, which says where. Replay is in pages, on the goroutine of whoever
// subscribes, so one that takes its time is not overrun by its own history, and delays nobody.
//
// # Life of a topic in a process
//
//	registering --interest and position are committed--> live <--gap, long body, reconnect; caught up--> reading
//	live, reading --last subscriber gone for Config.Linger--> leaving --interest deleted--> (none)
//	reading --the topic has another epoch--> waits for its moment --> reset, then live
//
// Interest is a row (topic, process), inserted under the topic's row lock; the publisher reads it after it took that lock. So
// a message is either before the subscriber's position or notified. The row also has the number of the process's subscribers:
// with the first it is exact, later it is written at most once a second, for all topics whose number changed. Where two such
// statements meet, the number is written again.
//
// A topic without a message is deleted with the last interest in it, under its row's lock, so that to name topics costs nothing
// that lasts.
//
// # Life of the listener
//
// A process without topics does not listen: each listener slows every NOTIFY of the database. The first subscription opens a
// connection of its own, and some seconds after the last topic left it is closed. Before anybody relies on it, it must have
// heard its own notification, which it does not behind a pooler in transaction mode ([ErrPooled]). It holds an advisory lock
// as a sign of life: publishers do not count the interest of a process whose lock is gone, and [Bus.Purge] deletes it.
//
// All listeners of a server share one queue of notifications, and one that does not read holds it up for all. So the process
// looks at its own from outside, and drops it when nobody reads what its backend writes, or, once, when the queue is too
// full. A process that is paused cannot: for that, the server ends the connection after six seconds.
//
// # What happens on failure
//
//   - The listener's connection ends, or is silent although it was asked for an answer: a new one is opened, all interest is
//     made anew, and every topic is read from its position.
//   - Notifications come faster than they are dispatched: they are dropped at a bound, and every topic is read.
//   - Interest was deleted by somebody, as by truncate: the listener asks with each probe whether its mark is still there;
//     if not, all interest is made anew.
//   - A notification is lost without any of that: positions are compared with the tables every twelve seconds, and what is behind
//     is read.
//   - Messages are no longer kept when they are read: subscribers get a [Partial] notice with the range. The topic has
//     another epoch: a [Reset] notice, then all of the new epoch.
//   - The topics were lost, in a crash or failover: everybody gets a reset, and may come to ask for what it missed. Each topic has
//     its own moment, within a millisecond for each subscriber of the process and five seconds at most; until then it brings
//     nothing, and who subscribes begins with the new epoch.
//   - One of several databases is away: its topics are, and no others. A Publish over several may have done a part.
//   - Processes have other databases, or another order: messages are lost between them. They meet in a database that all have, find
//     out and say so.
//   - The database is away: Publish fails with [ErrUnavailable], and what was in flight may have been published; a first
//     Subscribe fails too. Those who are subscribed stay so, and get what they missed, or a notice, when it is back.
//   - Too much waits to be published of a sender, or of all: Publish fails with [ErrUnavailable]. It never blocks for room.
//   - A subscriber is slow: it delays all others of this process. deliver must only enqueue.
//
// # Not promised
//
// A message is delivered once to each subscription, but a publisher that got an error and tries again may publish twice.
// Order holds in a topic, not between topics. Messages are kept for a short while (256, five minutes), and not through a
// crash of the database: they are hints and conversation; what must not be lost is in logged tables.
package backplane
