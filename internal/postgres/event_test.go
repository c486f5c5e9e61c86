package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

// history is a rig whose lines of history are written by hand. The type of each is its name.
type history struct{ *rig }

// execer is a pool or a transaction.
type execer interface {
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// write adds a line, and returns its position.
func (h history) write(to execer, tenant string, session int, name string) berth.Position {
	h.Helper()
	var p berth.Position
	err := to.QueryRow(h.Context(), `insert into berth.session_events (session, tenant_id, session_id, type)
		values ($1, $2, $3, $4) returning xid::text::bigint, id`, session, tenant, fmt.Sprint("s", session), name).Scan(&p.XID, &p.ID)
	if err != nil {
		h.Errorf("write %s: %v", name, err)
	}
	return p
}

// begin opens a transaction that ends with the test.
func (h history) begin() pgx.Tx {
	h.Helper()
	tx, err := h.db.Pool.Begin(h.Context())
	h.ok(err)
	h.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(h.Context())) }) // it may have committed
	return tx
}

func (h history) events(filter berth.EventFilter) []berth.Event {
	h.Helper()
	if filter.Limit == 0 {
		filter.Limit = 1000
	}
	events, err := h.store.Events(h.Context(), filter)
	h.ok(err)
	return events
}

// named expects exactly these lines, in this order. Transactions of other tests' databases may hold them back.
func (h history) named(filter berth.EventFilter, want ...string) {
	h.Helper()
	testkit.Eventually(h.T, 20*time.Second, func() error {
		if got := names(h.events(filter)); !slices.Equal(got, want) {
			return fmt.Errorf("%+v: got %v, want %v", filter, got, want)
		}
		return nil
	})
}

func names(events []berth.Event) []string {
	names := []string{}
	for _, e := range events {
		names = append(names, e.Type)
	}
	return names
}

func rising(a, b berth.Position) bool { return a.XID < b.XID || a.XID == b.XID && a.ID < b.ID }

// Transaction ids are text on their way, and "1000" comes before "999" in a dictionary.
func TestHistoryIsInOrderOfTransactionsAcrossPowersOfTen(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	for _, xid := range []int{100, 9, 11, 99, 10, 101, 8} {
		for part := range 2 {
			h.exec(`insert into berth.session_events (xid, session, tenant_id, session_id, type)
				values ($1::text::xid8, 1, 't1', 's1', $2)`, fmt.Sprint(xid), fmt.Sprint(xid, "-", part))
		}
	}
	var want []string
	for _, xid := range []int{8, 9, 10, 11, 99, 100, 101} {
		want = append(want, fmt.Sprint(xid, "-", 0), fmt.Sprint(xid, "-", 1))
	}
	for _, key := range []berth.SessionKey{0, 1} {
		for limit := 1; limit <= len(want)+1; limit++ {
			var got []string
			filter := berth.EventFilter{Key: key, Limit: limit}
			for page := h.events(filter); len(page) > 0; page = h.events(filter) {
				if len(page) > limit {
					t.Fatalf("%d lines, at most %d were asked for", len(page), limit)
				}
				got = append(got, names(page)...)
				filter.After = page[len(page)-1].Position
			}
			if !slices.Equal(got, want) {
				t.Errorf("session %d in pages of %d: %v, want %v", key, limit, got, want)
			}
		}
	}
	end, err := h.store.EventsEnd(t.Context())
	if err != nil || end.XID != 101 {
		t.Errorf("the end is %+v, %v, want transaction 101", end, err)
	}
}

func TestHistoryBeginsAtZero(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	end, err := h.store.EventsEnd(t.Context())
	if err != nil || end != (berth.Position{}) || len(h.events(berth.EventFilter{})) != 0 {
		t.Errorf("the end of no history is %+v, %v", end, err)
	}
	written := h.write(h.db.Pool, "t1", 1, "first")
	h.named(berth.EventFilter{}, "first")
	if end, err = h.store.EventsEnd(t.Context()); err != nil || end != written {
		t.Errorf("the end is %+v, %v, want %+v", end, err, written)
	}
	h.named(berth.EventFilter{After: end})
}

func TestOpenTransactionHoldsFollowersBackAndLosesNothing(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	h.write(h.db.Pool, "t1", 1, "before")
	h.named(berth.EventFilter{}, "before")
	before, err := h.store.EventsEnd(t.Context())
	h.ok(err)
	open := h.begin()
	h.write(open, "t1", 1, "early")
	h.write(h.db.Pool, "t1", 2, "late")
	for _, key := range []berth.SessionKey{0, 2} {
		if got := names(h.events(berth.EventFilter{After: before, Key: key})); len(got) > 0 {
			t.Errorf("session %d: a follower was given %v, and would miss what commits before it", key, got)
		}
	}
	if end, err := h.store.EventsEnd(t.Context()); err != nil || end != before {
		t.Errorf("the end is %+v, %v, want %+v", end, err, before)
	}
	h.write(open, "t1", 2, "early too")
	h.ok(open.Commit(t.Context()))
	h.named(berth.EventFilter{After: before}, "early", "early too", "late")
	h.named(berth.EventFilter{After: before, Key: 2}, "early too", "late")
}

func TestReadersHoldNoFollowerBack(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	reader := h.begin()
	_, err := reader.Exec(t.Context(), "set transaction isolation level repeatable read")
	h.ok(err)
	_, err = reader.Exec(t.Context(), "select count(*) from berth.session_events")
	h.ok(err)
	h.write(h.db.Pool, "t1", 1, "after")
	h.named(berth.EventFilter{}, "after")
}

func TestHistoryIsOfOneTenantAndOneSession(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	for _, line := range []struct {
		tenant  string
		session int
	}{{"t1", 1}, {"t2", 2}, {"t1", 3}, {"t1", 1}, {"t2", 2}} {
		h.write(h.db.Pool, line.tenant, line.session, fmt.Sprint(line.tenant, " ", line.session))
	}
	h.named(berth.EventFilter{}, "t1 1", "t2 2", "t1 3", "t1 1", "t2 2")
	h.named(berth.EventFilter{TenantID: "t1"}, "t1 1", "t1 3", "t1 1")
	h.named(berth.EventFilter{TenantID: "t2"}, "t2 2", "t2 2")
	h.named(berth.EventFilter{TenantID: "nobody"})
	h.named(berth.EventFilter{Key: 1}, "t1 1", "t1 1")
	h.named(berth.EventFilter{TenantID: "t1", Key: 3}, "t1 3")
	h.named(berth.EventFilter{TenantID: "t2", Key: 3}) // another tenant's session
}

func TestHistoryTellsTheLifeOfASession(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	h.worker("w1", 1)
	placed := h.place(start("a")).Session
	h.connect(placed, "c1")
	_, err := h.store.EndSession(t.Context(), "t1", "a")
	h.ok(err)
	filter := berth.EventFilter{TenantID: "t1", Key: placed.Key}
	h.named(filter, "created", "active", "peer_connected", "ended")
	for _, e := range h.events(filter) {
		if e.TenantID != "t1" || e.SessionID != "a" || e.Key != placed.Key || !isObject(e.Data) || time.Since(e.At).Abs() > time.Hour {
			t.Errorf("got %+v", e)
		}
	}
}

func isObject(data []byte) bool { return len(data) > 1 && data[0] == '{' }

// TestFollowerMissesAndRepeatsNothing reads page after page, while transactions of several lines commit in another order
// than they began in, and some roll back.
func TestFollowerMissesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	h := history{newRig(t)}
	const writers, rounds = 6, 40
	random := testkit.Rand(t)
	pauses := make([]time.Duration, writers*rounds*2)
	for i := range pauses {
		pauses[i] = time.Duration(random.IntN(4000)) * time.Microsecond
	}
	var mu sync.Mutex // guards written
	written := map[string]bool{}
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for round := range rounds {
				pause, name := pauses[2*(w*rounds+round):], fmt.Sprint(w, "-", round)
				if h.transaction(name, pause[0], pause[1], round%5 > 0) {
					mu.Lock()
					written[name+"a"], written[name+"b"] = true, true
					mu.Unlock()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()

	var last berth.Position
	read := map[string]int{}
	follow := func() int {
		page := h.events(berth.EventFilter{After: last, Limit: 7})
		for _, e := range page {
			if !rising(last, e.Position) {
				t.Errorf("%+v after %+v", e.Position, last)
			}
			last = e.Position
			read[e.Type]++
		}
		return len(page)
	}
	for running := true; running; {
		follow()
		select {
		case <-done:
			running = false
		default:
		}
	}
	testkit.EventuallyTrue(t, 20*time.Second, "the follower does not reach the end", func() bool {
		return follow() == 0 && len(read) >= len(written)
	})
	for name, times := range read {
		if times != 1 || !written[name] {
			t.Errorf("%s was read %d times, committed %v", name, times, written[name])
		}
	}
	if len(read) != len(written) || len(written) < rounds {
		t.Errorf("%d of %d lines were read", len(read), len(written))
	}
	if end, err := h.store.EventsEnd(t.Context()); err != nil || end != last {
		t.Errorf("the end is %+v, %v, and was read up to %+v", end, err, last)
	}
}

// transaction writes two lines, with pauses between, and reports whether it committed.
func (h history) transaction(name string, first, second time.Duration, commit bool) bool {
	rollback := errors.New("roll back")
	err := pgx.BeginFunc(h.Context(), h.db.Pool, func(tx pgx.Tx) error {
		h.write(tx, "t1", 1, name+"a")
		<-time.After(first)
		h.write(tx, "t1", 1, name+"b")
		<-time.After(second)
		if !commit {
			return rollback
		}
		return nil
	})
	if err != nil && !errors.Is(err, rollback) {
		h.Errorf("transaction %s: %v", name, err)
	}
	return err == nil
}
