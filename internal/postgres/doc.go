// Package postgres holds every query and transaction of Berth. Row types stop here: callers see values of
// internal/berth.
//
// Methods are units of work: each is one statement, or a few whose order does not matter to anybody else. What must
// be atomic is an SQL function (see migrations), called in one autocommit statement, so that a process that is
// stopped between two instructions holds no lock.
//
// # Errors
//
// A refusal by the database's own rules is a *berth.Refusal. A stale generation or instance is berth.ErrStale. When
// the database did not answer, or its answer was lost, the error wraps berth.ErrUnavailable and the outcome is
// unknown: every call may be repeated. Anything else is a bug.
//
// # Time
//
// now() is the database's. The program's clock is used for nothing but how long it waits.
package postgres
