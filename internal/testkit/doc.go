// Package testkit is what Berth's tests share: databases, waiting, logging,
// seeds and the leak check. It is for tests only and knows no other package of
// Berth but devpg.
//
// # Databases
//
// A test binary has at most one PostgreSQL server, started by the first test
// that asks for a database and stopped by [Main]. It keeps its data in memory
// where it can. The schema is migrated once, into a template; each test gets a
// clone, so tests run in parallel and NOTIFY, advisory locks and statistics of
// one do not reach another:
//
//	var databases = testkit.NewPostgres(migrations.Up, testkit.PostgresConfig{})
//
//	func TestMain(m *testing.M) {
//		os.Exit(testkit.Main(m, testkit.MainConfig{Postgres: databases}))
//	}
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		db := databases.Database(t)
//		...
//	}
//
// The package variable is in the test, since TestMain has no other way to hand
// something to the tests; testkit itself has no state.
//
// A test that stops, freezes or restarts PostgreSQL needs a server of its own:
// [StartPostgres].
//
// # Clean-up
//
// A database is dropped when its test ends, after PostgresConfig.AfterEach had
// a look at it. Cleanups run last in, first out: what a test starts after it
// asked for the database is stopped before.
package testkit
