package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/jobs"
)

// fakeRetention holds rows that ended, and counts the calls of each method.
type fakeRetention struct {
	ended int
	ran   map[string]int
	fails map[string]bool
}

// run counts a call, and fails if it should, or if it was told another age than the method's.
func (f *fakeRetention) run(method string, age, want time.Duration) error {
	if f.ran == nil {
		f.ran = map[string]int{}
	}
	f.ran[method]++
	if f.fails[method] || age != want {
		return errBroken
	}
	return nil
}

func (f *fakeRetention) PurgeSessions(_ context.Context, age time.Duration, limit int) (int, error) {
	if err := f.run("PurgeSessions", age, 24*time.Hour); err != nil {
		return 0, err
	}
	n := min(limit, f.ended)
	f.ended -= n
	return n, nil
}

func (f *fakeRetention) PurgeIdempotency(_ context.Context, age time.Duration, _ int) (int, error) {
	return 0, f.run("PurgeIdempotency", age, 24*time.Hour)
}

func (f *fakeRetention) PurgeHistory(_ context.Context, age time.Duration) error {
	return f.run("PurgeHistory", age, 7*24*time.Hour)
}

func (f *fakeRetention) ForgetEvents(context.Context) (int, error) {
	return 6, f.run("ForgetEvents", 0, 0)
}

func (f *fakeRetention) VacuumSlots(context.Context, int) error { return nil }

func (f *fakeRetention) RotateKeys(context.Context) error { return nil }

func TestRetentionGoesOnUntilNothingIsOld(t *testing.T) {
	t.Parallel()
	for ended, calls := range map[int]int{0: 1, 199: 1, 200: 2, 450: 3} {
		f := &fakeRetention{ended: ended}
		if err := jobs.Retain(t.Context(), f); err != nil || f.ended != 0 || f.ran["PurgeSessions"] != calls || f.ran["PurgeHistory"] != 1 {
			t.Errorf("of %d: left %d after %v, %v", ended, f.ended, f.ran, err)
		}
	}
}

func TestRetentionStepThatFailsDoesNotSkipTheOthers(t *testing.T) {
	t.Parallel()
	for method, step := range map[string]string{
		"PurgeSessions": "purge ended sessions", "PurgeIdempotency": "purge idempotency keys",
		"ForgetEvents": "empty the next partition of the history", "PurgeHistory": "purge history",
	} {
		f := &fakeRetention{fails: map[string]bool{method: true}}
		err := jobs.Retain(t.Context(), f)
		if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), step+": ") {
			t.Errorf("%s: got %v, want what failed in %q", method, err, step)
		}
		for _, other := range []string{"PurgeSessions", "PurgeIdempotency", "ForgetEvents", "PurgeHistory"} {
			if f.ran[other] != 1 {
				t.Errorf("%s fails: %s ran %d times, want once", method, other, f.ran[other])
			}
		}
	}
}

func TestRetentionNamesEveryStepThatFailed(t *testing.T) {
	t.Parallel()
	err := jobs.Retain(t.Context(), &fakeRetention{fails: map[string]bool{"PurgeSessions": true, "ForgetEvents": true}})
	for _, step := range []string{"purge ended sessions", "empty the next partition of the history"} {
		if err == nil || !strings.Contains(err.Error(), step) {
			t.Errorf("got %v, want %q in it", err, step)
		}
	}
}
