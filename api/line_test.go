package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

func TestRejoinsPassAtTheirRateAndTheRestIsToldWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers, perSecond = 1000, 100
		queue := newLine(perSecond, 5*time.Second)
		began := time.Now()
		var group sync.WaitGroup
		var mu sync.Mutex
		var passed, refused int
		var last time.Duration
		for range callers {
			group.Go(func() {
				err := queue.await(t.Context())
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					passed, last = passed+1, max(last, time.Since(began))
					return
				}
				refused++
				refusal, ok := errors.AsType[*berth.Refusal](err)
				if !ok || refusal.Code != berth.CodeUnavailable || !refusal.Retryable || refusal.RetryAfter <= 5*time.Second {
					t.Errorf("refused with %v", err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("refused after %v, want at once", took)
				}
			})
		}
		synctest.Wait()
		if line := queue.waits(); line != 500 {
			t.Errorf("%d wait, want those of five seconds", line)
		}
		group.Wait()
		if passed != 510 || refused != callers-510 || last != 5*time.Second {
			t.Errorf("%d passed until %v, %d refused", passed, last, refused)
		}
		if line := queue.waits(); line != 0 {
			t.Errorf("%d wait in the end", line)
		}
	})
}

func TestWhoLeavesTheLineGivesItsTurnBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := newLine(1, 5*time.Second)
		if err := queue.await(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := queue.await(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		began := time.Now()
		if err := queue.await(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v: the turn of who left was lost", err, time.Since(began))
		}
	})
}

func TestOnlyWhoMayRejoinTakesATurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.RejoinRate, c.RejoinHold = 1, 100*time.Millisecond })
	placed := r.place(`{"id":"s-1"}`)
	for _, credential := range []string{"", "nonsense", placed.RejoinToken + "x"} {
		if a := r.call("POST", "/v1/sessions/s-1/rejoin", credential, `{"generation":101}`); a.status != http.StatusUnauthorized {
			t.Errorf("%q: %d %s", credential, a.status, a.body)
		}
	}
	if a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, `{"generation":101}`); a.status != http.StatusOK {
		t.Errorf("the first: %d %s", a.status, a.body)
	}
	a := r.call("POST", "/v1/sessions/s-1/rejoin", placed.RejoinToken, `{"generation":101}`)
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.status != 503 || a.problem(t).Code != "unavailable" || err != nil || after < 1 {
		t.Errorf("one too many: %d %s, %v", a.status, a.body, err)
	}
}
