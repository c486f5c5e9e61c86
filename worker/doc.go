// Package worker is the process that serves sessions: it registers with the database, keeps its lease, and puts
// signaling and media together.
//
// # Who is authoritative
//
// The database owns the worker's state, its lease and its sessions. The worker trusts itself for less time than the
// lease lasts: it counts from before the renewal that was answered, on its own monotonic clock.
//
// # Life
//
//	registering --the old instance of this id is present and current--> registering
//	registering --opened--> serving
//	serving --lease over, nobody answered for the database--> in doubt
//	in doubt --"yours"--> serving
//	in doubt --"the database is away" for the hold limit--> silent (nothing runs, every connection closed with 1012)
//	in doubt --silence from everybody for the silence limit--> silent
//	silent --"yours"--> serving
//	serving, in doubt, silent --"over"--> registering, as a new instance, with nothing
//	any --"replaced"--> stopped: another process has this id
//	serving --drain, or Stop--> draining --empty or deadline, after Stop--> stopped
//
// In doubt the worker admits nobody to sessions that do not run here yet, keeps what runs and goes on asking. A session
// that is placed elsewhere at once when its worker is lost (berth.LossReplace) is fenced at the end of the lease,
// because two owners must not both act. What the worker gives up by itself, by the fence or after silence, it goes on
// holding in its renewals until its clients had time to return: the database may not have placed it elsewhere, and
// would end it as forgotten.
//
// # Two paths
//
// A worker whose renewal the database does not answer asks API replicas, if it knows any (Config.APIURLs): in random
// order, the next one when one failed or is slow. A replica renews in its name, for the secret that the instance made
// when it registered, and answers what the database says: the lease, orders, sessions to drop. So a worker that is cut
// off from the database alone goes on, for as long as that lasts. Meanwhile new peers are asked to try again, ends wait,
// and the database gives it no new sessions.
//
// A replica that does not reach the database either says so. Then the database is away, and the worker stays in doubt up
// to the hold limit. When nobody answers, neither the database nor any replica, it is the worker that is cut off: what it
// serves may have been given to others, and it stops everything soon after its lease. Without replicas nobody can tell
// the two apart, and silence is taken for a database that is away.
//
// # Pauses
//
// A process that was stopped finds all its deadlines overdue when it wakes, before it could ask anybody. [Awake]
// notices: a hole of more than two seconds in a 250 ms ticker means that the process was paused, and every deadline of
// the lease and of signaling counts from waking. The fence alone does not wait: whoever was paused past its lease has
// been replaced.
//
// # Draining
//
// The answer to a renewal says whether the worker drains and until when. It then serves what is placed here, refuses
// the rest, and moves sessions one after the other in the last thirty seconds, so that they do not all come back at once.
// With many connections that begins earlier, so that the others get two hundred per second at most, but never before half
// of the time is over. Another deadline is another plan, for what is left. Stop drains the worker itself and returns when
// it is empty or its deadline passed; a done context ends the wait.
//
// # Concurrency
//
// One goroutine (keeper.run) owns the state of a registration. Calls to the database run beside it, one of a kind at
// a time, and report back, so that a database that hangs delays no deadline.
package worker
