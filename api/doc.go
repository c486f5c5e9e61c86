// Package api serves Berth's HTTP API: routes, roles, strict JSON, one mapping of errors, health, documents.
//
// # Who is authoritative
//
// openapi.yaml says what exists; types and parameter binding are generated from it (internal/wire), and tests compare
// routes and real answers with it. The database says what is true: a handler checks the form of a request, hands it to
// the store in one call, and answers what the store says. The process holds no state of sessions, so any number of
// replicas may run.
//
// # How a request flows
//
// A request gets an id, a log line and a metric by route pattern; then its key is checked, then its path and query, then
// its body (strict JSON, 64 KiB). Only a valid request reaches the store. Whatever fails is one *berth.Refusal or an
// error, and problem.go alone turns it into a status: nothing that a caller sent and nothing that the database said is
// ever answered.
//
// # Streams
//
// An event stream is one request that lasts. Its goroutine reads pages of history after the position that it sent last,
// and sleeps while nothing is new: one watcher per process asks the database for the newest position and wakes all of
// them. So memory is bounded by a page for each of a bounded number of streams, and a quiet system costs one query per
// poll. The id of an event is its position, and a position says all that a stream needs to go on, at any replica.
//
// # Topics
//
// What is published goes to the backplane in one call, and the answer says where it is and how many processes were told. A
// message to a user goes to the inboxes of the workers that hold the user, and to nobody else: the database knows them by the
// rows of connected peers, so what a lost worker held is not counted. A stream of a topic is a subscription of this process
// with a bounded queue before its client; positions are the backplane's, so a client resumes at any replica. Who follows is a
// tenant, or a peer whose session token allows the topic. Which topics that are, and which user the peer is, only the request
// says that places it: the tokens of its answer carry it on, and the row of a peer that connected has its user alone. So a
// rejoin by tenant key, which shows no such token, gives no topics unless it says which.
//
// # What happens when something fails
//
//   - The database is away or slow: 503 unavailable with Retry-After, within RequestTimeout. /livez stays 200, /readyz
//     becomes 503 within a second.
//   - The caller goes away: its context ends the work; logged as 499, counted as no error. A claim that committed
//     nevertheless is released by connect_by.
//   - A start waits for room and this process stops: it leaves the queue and is refused with 503.
//   - The database is away while a stream is open: the stream stays, silent but for comments, and gets what it missed.
//   - The client of a stream does not read: it is cut after StreamWriteTimeout, and goes on where it was when it returns.
//   - The key of a stream is revoked: nothing is sent any more, and the stream ends with the next event or comment.
//   - The session of a peer that follows a topic ends: the stream ends within two StreamKeepAlive, once somebody can tell.
//   - The client of a topic's stream does not keep up: the stream ends, and goes on after the last event when it returns. For
//     history that it asked for it is waited for instead.
//   - The backplane is away: publishing and new streams of topics are refused with 503; those that are open stay, and say
//     what they missed.
//   - The owner of a session is in question: a rejoin wakes the reaper and is held for RejoinHold, then 503.
//   - More rejoins come than RejoinRate: each waits for its turn, and 503 at once if that is beyond RejoinHold.
//   - A nudge to a worker is lost: the order comes with the answer to the worker's next renewal anyway.
//   - Stop: /readyz turns 503 and new starts are refused with 503 and Connection: close for ShutdownDelay, while
//     everything else is served; then the listener closes, streams end at once, and running requests get
//     ShutdownTimeout to finish.
//
// # What is not promised
//
// Lists are not a snapshot: a page shows what was true when it was read. A stream sends each event once, but a client
// that returns after a failover of the database which lost transactions may miss events or see some again. RateLimit
// fields say how things stood at the start they came with; other starts may have been made since.
package api
