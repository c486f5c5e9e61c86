package backplane

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoListensIsAskedOnceForAllWhoWantToKnow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, away := 0, error(nil)
		r := &roll{life: time.Second, read: func(ctx context.Context) ([]int64, error) {
			reads++
			select {
			case <-time.After(100 * time.Millisecond):
				return []int64{int64(reads)}, away
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		all := func(ctx context.Context, check func([]int64, error)) {
			var asking sync.WaitGroup
			for range 50 {
				asking.Go(func() { check(r.call(ctx)) })
			}
			asking.Wait()
		}
		answers := func(want int64) {
			all(t.Context(), func(got []int64, err error) {
				if err != nil || len(got) != 1 || got[0] != want {
					t.Errorf("%v, %v, want %d", got, err, want)
				}
			})
		}
		answers(1)
		answers(1)
		<-time.After(time.Second)
		away = errors.New("away")
		all(t.Context(), func(_ []int64, err error) {
			if !errors.Is(err, away) {
				t.Error(err)
			}
		})
		if reads != 2 {
			t.Errorf("asked %d times", reads)
		}
		away = nil
		impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var left sync.WaitGroup
		left.Go(func() {
			if _, err := r.call(impatient); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		answers(4) // whoever asked third has gone, and the others ask again
		left.Wait()
	})
}
