// Package berth is the domain of Berth: the words, states, limits and policies that every other package speaks.
//
// It depends on the standard library only. It knows neither SQL nor HTTP nor WebRTC.
//
// # Who is authoritative
//
// The database owns sessions, workers, slots and time. A value of this package is a copy of a row as it was
// read: it is never trusted for a decision that the database can make in the same statement as the write.
//
// # Session states
//
//	assigned --first authenticated socket--> active --bye, idle, ttl, delete--> ended
//	assigned, active --owner lost, drain deadline, newer instance--> awaiting_rejoin
//	awaiting_rejoin --rejoin, replace--> assigned (a larger generation)
//	assigned --connect_by passed--> ended (no_show); awaiting_rejoin --rejoin_by passed--> ended (rejoin_timeout)
//
// A media session holds a slot exactly while it is assigned or active, and counts against its tenant's quota
// exactly while it is not ended.
//
// # Worker states
//
//	starting -> ready -> draining -> gone
//	any of these -> lost (the reaper's verdict); lost, gone -> starting only by registering as a new instance
//
// A cordon is a reason on the worker, not a state: a cordoned worker keeps what it has and is given nothing new.
//
// # Generations
//
// Each placement draws a number from one global sequence, so a later placement always has the larger one. Every
// write by an owner names the generation it acts for and affects nothing once that placement is history.
package berth
