package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berthdev/berth/jobs"
)

// fakeRetention holds rows that ended.
type fakeRetention struct {
	ended   int
	calls   int
	history bool
	fails   string
}

func (f *fakeRetention) PurgeSessions(_ context.Context, age time.Duration, limit int) (int, error) {
	f.calls++
	if f.fails == "PurgeSessions" || age != 24*time.Hour {
		return 0, errBroken
	}
	n := min(limit, f.ended)
	f.ended -= n
	return n, nil
}

func (f *fakeRetention) PurgeHistory(context.Context, time.Duration) error {
	f.history = true
	if f.fails == "PurgeHistory" {
		return errBroken
	}
	return nil
}

func (f *fakeRetention) PurgeIdempotency(_ context.Context, age time.Duration, _ int) (int, error) {
	if f.fails == "PurgeIdempotency" || age != 24*time.Hour {
		return 0, errBroken
	}
	return 0, nil
}

func (f *fakeRetention) ForgetEvents(context.Context) (int, error) {
	if f.fails == "ForgetEvents" {
		return 0, errBroken
	}
	return 6, nil
}

func (f *fakeRetention) RotateKeys(context.Context) error { return nil }

func TestRetentionGoesOnUntilNothingIsOld(t *testing.T) {
	t.Parallel()
	for ended, calls := range map[int]int{0: 1, 199: 1, 200: 2, 450: 3} {
		f := &fakeRetention{ended: ended}
		if err := jobs.Retain(t.Context(), f); err != nil || f.ended != 0 || f.calls != calls || !f.history {
			t.Errorf("of %d: left %d after %d calls, history %v, %v", ended, f.ended, f.calls, f.history, err)
		}
	}
}

func TestRetentionSaysWhatFailed(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"PurgeSessions", "PurgeIdempotency", "ForgetEvents", "PurgeHistory"} {
		if err := jobs.Retain(t.Context(), &fakeRetention{fails: method}); !errors.Is(err, errBroken) {
			t.Errorf("%s: got %v", method, err)
		}
	}
}
