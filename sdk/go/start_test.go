package berth

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAStartSaysHowItIsToBePlaced(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL})
	_, err := client.CreateSession(t.Context(), CreateSession{
		ID: "s-1", Slots: 4, Strategy: StrategyPack, Selector: map[string]string{"gpu": "a100"},
		Wait: 10 * time.Second, IdempotencyKey: "order-4711",
	})
	if err != nil {
		t.Fatal(err)
	}
	r := api.seen()[0]
	want := map[string]any{"id": "s-1", "slots": 4.0, "strategy": "pack", "selector": map[string]any{"gpu": "a100"}}
	if diff := cmp.Diff(want, r.body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if r.prefer != "wait=10" || r.key != `"order-4711"` {
		t.Errorf("Prefer %q, Idempotency-Key %q", r.prefer, r.key)
	}
}

func TestAStartThatDoesNotSayLeavesItToTheAPI(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL})
	if _, err := client.CreateSession(t.Context(), CreateSession{ID: "s-1"}); err != nil {
		t.Fatal(err)
	}
	r := api.seen()[0]
	if diff := cmp.Diff(map[string]any{"id": "s-1"}, r.body); diff != "" || r.prefer != "" {
		t.Errorf("Prefer %q, body (-want +got):\n%s", r.prefer, diff)
	}
}

func TestWrongWaitsAndKeysAreRefusedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL})
	for field, session := range map[string]CreateSession{
		"wait":            {Wait: 1500 * time.Millisecond},
		"idempotency_key": {IdempotencyKey: "a key"},
	} {
		_, err := client.CreateSession(t.Context(), session)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalidArgument || e.Fields[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, session := range []CreateSession{
		{Wait: -time.Second}, {IdempotencyKey: "a\nb"}, {IdempotencyKey: "é"}, {IdempotencyKey: strings.Repeat("a", 256)},
	} {
		if _, err := client.CreateSession(t.Context(), session); ErrorCode(err) != CodeInvalidArgument {
			t.Errorf("%+v: %v", session, err)
		}
	}
	if n := len(api.seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestAWaitingAttemptMayTakeItsWaitLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			deadline, _ := r.Context().Deadline()
			if got := deadline.Sub(start); got != DefaultAttemptTimeout+30*time.Second {
				t.Errorf("an attempt that waits 30 s may take %s", got)
			}
			return problemResponse(http.StatusBadRequest, CodeInvalidArgument, false, ""), nil
		})
		client, err := New(Config{URL: "http://api", HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CreateSession(t.Context(), CreateSession{Wait: 30 * time.Second})
		if ErrorCode(err) != CodeInvalidArgument {
			t.Error(err)
		}
	})
}

// waited answers like an API that is full, or stops, some seconds into the wait.
func waited(client *Client, steps ...roundTrip) *[]string {
	var preferred []string
	client.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		preferred = append(preferred, r.Header.Get("Prefer"))
		return steps[min(len(preferred), len(steps))-1](r)
	})
	return &preferred
}

func after(d time.Duration, status int, code Code, retryAfter string) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		if err := sleep(r.Context(), d); err != nil { // fake time
			return nil, err
		}
		return problemResponse(status, code, true, retryAfter), nil
	}
}

func TestAStartThatWaitedIsNotTriedAgainAtCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := offline(t, nil)
		preferred := waited(client, after(10*time.Second, http.StatusServiceUnavailable, CodeAtCapacity, "3"))
		_, err := client.CreateSession(t.Context(), CreateSession{Wait: 10 * time.Second})
		if wait, _ := RetryAfter(err); !IsAtCapacity(err) || wait != 3*time.Second {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"wait=10"}, *preferred); diff != "" {
			t.Errorf("Prefer (-want +got):\n%s", diff)
		}
	})
}

func TestAnInterruptedWaitGoesOnForWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := offline(t, nil)
		client.random = func() float64 { return 0 }
		preferred := waited(client,
			after(4*time.Second, http.StatusServiceUnavailable, CodeUnavailable, "1"), // the process stops
			after(0, http.StatusServiceUnavailable, CodeAtCapacity, "2"),              // the next one cannot let it wait yet
			after(3*time.Second, http.StatusServiceUnavailable, CodeAtCapacity, "1"))
		_, err := client.CreateSession(t.Context(), CreateSession{Wait: 10 * time.Second})
		if !IsAtCapacity(err) {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"wait=10", "wait=5", "wait=3"}, *preferred); diff != "" {
			t.Errorf("Prefer (-want +got):\n%s", diff)
		}
	})
}

func TestAStartRateIsWaitedForAndAQuotaIsNot(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t,
		refuseFor(http.StatusTooManyRequests, CodeSessionStartRateLimited, true, "Retry-After", "7"), answerJSON(201, anyPlacement))
	client, naps := testClient(t, Config{URL: api.URL})
	if _, err := client.CreateSession(t.Context(), CreateSession{}); err != nil {
		t.Fatal(err)
	}
	if waits := naps.all(); len(waits) != 1 || waits[0] < 7*time.Second || waits[0] > 8750*time.Millisecond {
		t.Errorf("waited %v, want 7 s and up to a quarter more", waits)
	}

	full := newFakeAPI(t, refuseFor(http.StatusTooManyRequests, CodeConcurrentSessions, true, "Retry-After", "1"))
	client, naps = testClient(t, Config{URL: full.URL})
	_, err := client.CreateSession(t.Context(), CreateSession{})
	if !IsConcurrentSessions(err) || len(full.seen()) != 1 || len(naps.all()) != 0 {
		t.Errorf("%d attempts, %v", len(full.seen()), err)
	}
}
