// Package jobs is what runs in the background of API processes: the reaper, retention, the rotation of keys and an
// audit of the invariants.
//
// # Model
//
// One actor at a time judges workers and ends what is overdue, at any number of API replicas: whoever holds the
// reaper's advisory lock. What it knows is in rows (reaper_state, gaps), so a successor goes on where it stopped, and
// each of its writes names the tick, so a reaper that was paused and overtaken changes nothing.
//
// A tick looks, judges each worker (berth.Detection.Judge), asks those whose presence is gone on their control
// address, and moves the sessions of those that are proven dead. When a look opens a gap, the tick waits for the
// confirm delay and looks again, so that one tick is enough to find a killed worker. Each step is one statement: a
// worker is marked lost and that is committed, then its sessions follow in chunks. A tick that dies in between leaves
// rows that the next one finds (Unfinished).
//
// Ticks come from a River periodic job, once a second, and early from Wake, when somebody waits for a verdict.
//
// # Failures
//
// A database that does not answer fails the tick; the next one starts blind (berth.Tick) and trusts nothing that was
// remembered. A tick that finds the lock taken does nothing. A lost Wake costs at most a second.
//
// # Not promised
//
// While no API process runs, nobody is declared lost and nothing overdue ends. A River leader that is killed delays
// the periodic tick by up to 20 s; Wake does not depend on it.
package jobs
