package worker

import (
	"testing"
	"time"
)

func TestDatabaseTimeRunsOnFromTheLastAnswer(t *testing.T) {
	t.Parallel()
	host := time.Now()
	clock := &databaseClock{now: func() time.Time { return host }}
	if got := clock.Now(); !got.Equal(host) {
		t.Fatalf("%v before the first answer, want the host's %v", got, host)
	}
	database := time.Unix(1_000_000, 0)
	clock.learn(database, host, host.Add(2*time.Second))
	host = host.Add(3 * time.Second)
	if got := clock.Now(); !got.Equal(database.Add(2 * time.Second)) {
		t.Fatalf("%v two seconds later, want %v", got, database.Add(2*time.Second))
	}
}
