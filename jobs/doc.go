// Package jobs is what runs in the background of API processes: the reaper, retention, the rotation of keys and an
// audit of the invariants.
//
// # Model
//
// One actor at a time judges workers and ends what is overdue, at any number of API replicas: whoever holds the
// reaper's advisory lock. What it knows is in rows (reaper_state, gaps), so a successor goes on where it stopped, and
// each of its writes names the tick, so a reaper that was paused and overtaken changes nothing.
//
// A tick has a Detector look, judges each worker (berth.Detection.Judge), has the detector confirm those that are
// missing, and moves the sessions of those that are lost. There are three detectors: presence, lease and sweep. When a
// look opens a gap, the tick waits for the confirm delay and looks again, so that one tick is enough to find a killed
// worker. Each step is one statement: a worker is marked lost and that is committed, then its sessions follow in
// chunks. A tick that dies in between leaves rows that the next one finds (Unfinished).
//
// Ticks come from a River periodic job, once a second, and early from Wake: when somebody waits for a verdict, and from
// the Sentinel. Each process has one; the one that has the lock of the sentinels looks ten times a second, by a query
// that costs by workers, and wakes its own reaper. The others stand by.
//
// The reaper distrusts itself: a blind tick (berth.Tick) forgets what was remembered, a clock that was moved makes the next
// tick blind, and losses without proof of most workers need a look over a fresh connection to agree.
//
// # Failures
//
// A database that does not answer fails the tick; the next one starts blind (berth.Tick) and trusts nothing that was
// remembered. A tick that finds the lock taken does nothing. A lost Wake costs at most a second. A sentinel that is killed
// frees its lock at once, and one that is paused, or a reaper inside its tick, has its connection ended by Postgres
// (internal/postgres). River's leader may die: the sentinel asks for ticks that stay away.
//
// # Not promised
//
// While no API process runs, nobody is declared lost and nothing overdue ends. Without a sentinel (berth.Detection.Watch
// zero) a River leader that is killed delays the periodic tick by up to 20 s.
package jobs
