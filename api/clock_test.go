package api

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDatabaseTimeIsReadOnceAMinuteAndRunsOnMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, ahead, fail := 0, time.Hour, error(nil)
		clock := newDatabaseClock(func(context.Context) (time.Time, error) {
			reads++
			return time.Now().Add(ahead), fail
		})
		expect := func(want time.Duration, wantReads int) {
			t.Helper()
			now, err := clock.now(t.Context())
			if got := time.Until(now); err != nil || got != want || reads != wantReads {
				t.Errorf("%v ahead after %d reads, %v, want %v after %d", got, reads, err, want, wantReads)
			}
		}
		fail = errors.New("away")
		if _, err := clock.now(t.Context()); !errors.Is(err, fail) {
			t.Errorf("before the first reading: %v", err)
		}
		fail = nil
		expect(time.Hour, 2)
		ahead = 2 * time.Hour
		<-time.After(clockAge - time.Second)
		expect(time.Hour, 2)
		<-time.After(time.Second)
		expect(2*time.Hour, 3)
		<-time.After(2 * clockAge)
		fail = errors.New("away")
		expect(2*time.Hour, 4)
	})
}

func TestOneReadsTheClockForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, proceed := 0, make(chan struct{})
		clock := newDatabaseClock(func(context.Context) (time.Time, error) {
			reads++
			<-proceed
			return time.Now(), nil
		})
		done := make(chan error)
		for range 10 {
			go func() {
				_, err := clock.now(t.Context())
				done <- err
			}()
		}
		synctest.Wait()
		close(proceed)
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
	})
}
