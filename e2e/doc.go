// Package e2e holds the end-to-end tests: they run the real binary and look at it from outside, as a browser, a program with
// the Go client, an operator or psql would. It has no code of its own.
//
// # Model
//
// Everything under test is a process of one binary, built once per run and with the race detector exactly when the tests are.
// BERTH_TEST_BINARY names a binary that was built before, such as a release. A [stack] is one `berth dev` with its database.
// Most tests share one, to which two more API processes are added; each has a tenant and a region with workers of its own
// there, so that they run in parallel without meeting. A test that kills what `berth dev` runs has a stack to itself.
//
// # What every test checks
//
// At its end the view berth.violations is empty. When a process ends there is no report of a data race in what it wrote, and
// when a stack ends no process and no file of it is left. Processes are found by the directory that is their TMPDIR: its
// path is in the environment or on the command line of each, PostgreSQL's included.
//
// # Clocks
//
// A process that is started with BERTH_TEST_CLOCK_OFFSET has a wall clock of its own, which the file of that name sets. It
// is another binary: the standard library's time.Now is built with an offset, so that libraries are wrong as well, and the
// build tag clockoffset makes the variable known. Any other binary refuses it as a name that it does not know.
//
// # Waiting
//
// What another process does is polled for with a deadline that is far longer than it should take: the machine may be busy,
// and the race detector makes processes several times slower. Seconds that matter are printed, and measured by
// BenchmarkBrowserFailover, which `make bench/failover-browser` runs with a release binary.
package e2e
