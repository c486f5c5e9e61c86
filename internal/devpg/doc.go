// Package devpg runs a private PostgreSQL server from the binaries that are
// installed on this machine, for `berth dev` and for tests. It downloads
// nothing and works as root.
//
// # Model
//
// A [Server] owns one postmaster process and up to two directories:
//
//	scratch   <temp>/berth-pg-NNNN   always; removed by Stop
//	  owner.lock   flock held by the process that owns the server
//	  run/         Unix socket, reachable by the owner only
//	store     Config.Dir, or the scratch directory if that is empty
//	  owner.lock   as above; a second owner is refused
//	  data/        the database cluster
//	  password     of the superuser, mode 0600
//	  postgres.log what the server had to say
//
// The flock is the only evidence of ownership: the kernel drops it when the
// owner dies, however it dies, and it cannot be confused by a reused pid.
//
// # Users and access
//
// PostgreSQL refuses to run as root. Started by root, the server runs as the
// user who owns an existing data directory, else as `postgres`, else as
// `nobody`. It listens on a Unix socket in a directory that only the owner may
// enter, where it trusts everybody, and on a loopback address, where other
// local users could knock and a random password is needed.
//
// # When the owner dies
//
// The kernel sends the postmaster SIGQUIT when the thread that started it ends
// (Linux: parent death signal), so one goroutine starts the postmaster on a
// locked thread and stays on it until the postmaster is gone. Elsewhere a
// shell that reads from a pipe does the same (see tether). SIGQUIT is an
// immediate shutdown: the postmaster kills backends that do not obey within
// five seconds. A durable store recovers from its log at the next start.
//
// What the dead owner could not remove, the next Start removes: every scratch
// directory whose lock is free, after stopping a postmaster that still runs on
// it. Only a process whose command line names both that data directory and
// this package's cluster name is ever signalled.
// What a killed server leaves outside its directory goes too: its System V
// segment is removed, and a temporary server keeps no segments in /dev/shm.
//
// # What is not promised
//
// Linux and macOS only. Without Config.Durable a crash of the machine
// loses the data. The server is for one machine: it never listens on anything
// but loopback.
package devpg
