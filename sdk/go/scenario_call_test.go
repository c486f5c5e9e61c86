package berth

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func httpDate(form string, at time.Time) string {
	switch form {
	case "rfc850":
		return at.UTC().Format("Monday, 02-Jan-06 15:04:05 GMT")
	case "asctime":
		return at.UTC().Format(time.ANSIC)
	default:
		return at.UTC().Format(http.TimeFormat)
	}
}

var anyPlacement = Placement{ID: "s-1", Kind: "media", Generation: 7, Token: "jwt"}

func TestScenario_K01_DatesInEveryFormAreWaitedFor(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"imf", "rfc850", "asctime"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, func(w http.ResponseWriter, r *http.Request) {
				refuse(503, CodeAtCapacity, "Retry-After", httpDate(form, time.Now().Add(5*time.Second)))(w, r)
			}, answerJSON(201, anyPlacement))
			client, naps := testClient(t, Config{URL: api.URL})
			if _, err := client.CreateSession(t.Context(), CreateSession{}); err != nil {
				t.Fatal(err)
			}
			waits := naps.all()
			if len(waits) != 1 || waits[0] < 3*time.Second || waits[0] > 6250*time.Millisecond {
				t.Errorf("waited %v, want about 5 s", waits)
			}
		})
	}
}

func TestScenario_K03_SignedAndDecimalTimesAreIgnored(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"-3", "+3", "1.5"} {
		api := newFakeAPI(t, refuse(503, CodeAtCapacity, "Retry-After", value), answerJSON(201, anyPlacement))
		client, naps := testClient(t, Config{URL: api.URL})
		client.random = func() float64 { return 0.5 }
		if _, err := client.CreateSession(t.Context(), CreateSession{}); err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		// Half of the first window, and half of the jitter on top.
		if got, want := naps.all()[0], 281250*time.Microsecond; got != want {
			t.Errorf("%s: waited %s, want the normal backoff %s", value, got, want)
		}
	}
}

func TestScenario_K05_HugeTimesSaturate(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"9223372037", "9223372036854775807", strings.Repeat("9", 400)} {
		api := newFakeAPI(t, refuse(503, CodeAtCapacity, "Retry-After", value))
		client, naps := testClient(t, Config{URL: api.URL})
		_, err := client.CreateSession(t.Context(), CreateSession{})
		if after, _ := RetryAfter(err); after != forever || len(naps.all()) != 0 {
			t.Errorf("%.20s: RetryAfter %s, waits %v; want an error at once that says for ever", value, after, naps.all())
		}
	}
}

// roundTrip is a transport without a network, so that fake time can pass.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestScenario_K06_ZeroAndPastTimesKeepTheBackoff(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]func() string{
		"zero": func() string { return "0" },
		"past": func() string { return httpDate("imf", time.Now().Add(-30*time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				client := offline(t, func(int) *http.Response {
					attempts++
					return problemResponse(http.StatusTooManyRequests, CodeSessionStartRateLimited, true, value())
				})
				client.maxRetries = 6
				client.random = func() float64 { return 0.5 }
				start := time.Now()
				_, err := client.CreateSession(t.Context(), CreateSession{})
				if ErrorCode(err) != CodeSessionStartRateLimited || attempts != 7 {
					t.Errorf("%d attempts, %v; want 7", attempts, err)
				}
				// Half of 0.5+1+2+4+8+8 s, an eighth on top.
				if got, want := time.Since(start), 13218750*time.Microsecond; got != want {
					t.Errorf("took %s, want %s", got, want)
				}
			})
		})
	}
}

func TestScenario_K08_WaitsBeyondTheDeadlineReturnAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		value string
		waits int
	}{
		"shorter than both":            {"5", 1},
		"the deadline":                 {"30", 0},
		"beyond the deadline":          {"31", 0},
		"beyond everything":            {"3600", 0},
		"the cap, but the deadline is": {"29", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, refuse(503, CodeAtCapacity, "Retry-After", test.value), answerJSON(201, anyPlacement))
			client, naps := testClient(t, Config{URL: api.URL})
			client.random = func() float64 { return 0 }
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := client.CreateSession(ctx, CreateSession{})
			if len(naps.all()) != test.waits || (err == nil) != (test.waits > 0) {
				t.Fatalf("waits %v, %v", naps.all(), err)
			}
			if _, told := RetryAfter(err); err != nil && !told {
				t.Errorf("%v does not carry the time", err)
			}
		})
	}
}

func TestScenario_K10_EveryAnswerHasOneDecision(t *testing.T) {
	t.Parallel()
	for _, test := range loadRetryCases(t) {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t, test.answer, answerJSON(201, anyPlacement))
			client, naps := testClient(t, Config{URL: api.URL})
			ctx, cancel := test.context(t)
			defer cancel()
			_, err := client.CreateSession(ctx, CreateSession{})
			waits := naps.all()
			if (len(waits) > 0) != test.Want.Retry || (err == nil) != test.Want.Retry {
				t.Fatalf("waits %v, %v; want retry %t", waits, err, test.Want.Retry)
			}
			if test.Want.Retry && (waits[0].Milliseconds() < test.Want.MinMS || waits[0].Milliseconds() > test.Want.MaxMS) {
				t.Errorf("waited %s, want %d..%d ms", waits[0], test.Want.MinMS, test.Want.MaxMS)
			}
			after, _ := RetryAfter(err)
			if s := test.Want.RetryAfterSeconds; s != 0 && after != time.Duration(s)*time.Second {
				t.Errorf("RetryAfter is %s, want %d s", after, s)
			}
		})
	}
}

// retryCase is a row of testdata/retry.json.
type retryCase struct {
	Name           string
	Status         int
	Code           Code
	RetryAfter     string `json:"retry_after"`
	RetryAfterDate *struct {
		Form          string
		OffsetSeconds int `json:"offset_seconds"`
	} `json:"retry_after_date"`
	ShouldRetry string `json:"should_retry"`
	Retryable   bool
	DeadlineMS  int `json:"deadline_ms"`
	Want        struct {
		Retry             bool
		MinMS             int64 `json:"min_ms"`
		MaxMS             int64 `json:"max_ms"`
		RetryAfterSeconds int64 `json:"retry_after_seconds"`
	}
}

func loadRetryCases(t *testing.T) []retryCase {
	t.Helper()
	data, err := os.ReadFile("testdata/retry.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct{ Cases []retryCase }
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) < 40 {
		t.Fatalf("%d cases, want at least 40", len(table.Cases))
	}
	return table.Cases
}

func (c retryCase) answer(w http.ResponseWriter, r *http.Request) {
	if c.RetryAfter != "" {
		w.Header().Set("Retry-After", c.RetryAfter)
	}
	if d := c.RetryAfterDate; d != nil {
		w.Header().Set("Retry-After", httpDate(d.Form, time.Now().Add(time.Duration(d.OffsetSeconds)*time.Second)))
	}
	if c.ShouldRetry != "" {
		w.Header().Set("Berth-Should-Retry", c.ShouldRetry)
	}
	if c.Code == "" {
		http.Error(w, "<html>a proxy</html>", c.Status)
		return
	}
	refuseFor(c.Status, c.Code, c.Retryable || c.Status >= 500)(w, r)
}

func (c retryCase) context(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	if c.DeadlineMS == 0 {
		return context.WithCancel(t.Context())
	}
	return context.WithTimeout(t.Context(), time.Duration(c.DeadlineMS)*time.Millisecond)
}

func TestScenario_K25_IDAndKeyStayTheSameOnAllAttempts(t *testing.T) {
	t.Parallel()
	for name, session := range map[string]CreateSession{
		"own":       {ID: "mine", Peer: Peer{ID: "me"}, IdempotencyKey: `a"quoted\\"key`},
		"own key":   {IdempotencyKey: "order-4711"},
		"own id":    {ID: "mine"},
		"generated": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failure := refuse(502, "")
			api := newFakeAPI(t, failure, failure, answerJSON(201, anyPlacement))
			client, _ := testClient(t, Config{URL: api.URL, APIKey: "k"})
			if _, err := client.CreateSession(t.Context(), session); err != nil {
				t.Fatal(err)
			}
			seen := api.seen()
			if len(seen) != 3 {
				t.Fatalf("%d attempts, want 3", len(seen))
			}
			first, _ := json.Marshal(seen[0].body)
			for i, r := range seen {
				body, _ := json.Marshal(r.body)
				if string(body) != string(first) || r.key != seen[0].key || r.key == "" {
					t.Errorf("attempt %d sent %s with key %s, the first %s with %s", i, body, r.key, first, seen[0].key)
				}
				if want := []string{"", "1", "2"}[i]; r.retryCount != want {
					t.Errorf("attempt %d: X-Berth-Retry-Count is %q", i, r.retryCount)
				}
			}
			if session.ID != "" && seen[2].body["id"] != session.ID {
				t.Errorf("the caller's id became %v", seen[2].body["id"])
			}
			if session.IdempotencyKey != "" && seen[2].key != quoteKey(session.IdempotencyKey) {
				t.Errorf("the caller's key became %s", seen[2].key)
			}
		})
	}
}

func TestScenario_K25_EachCallHasAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL})
	for range 2 {
		if _, err := client.CreateSession(t.Context(), CreateSession{ID: "s-1"}); err != nil {
			t.Fatal(err)
		}
	}
	if seen := api.seen(); seen[0].key == seen[1].key {
		t.Errorf("two calls share the key %s: the second would be answered with the first's session, ended or not", seen[0].key)
	}
}

func TestScenario_K25_ACallWithTheCallersKeySaysTheSameEachTime(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, answerJSON(201, anyPlacement))
	client, _ := testClient(t, Config{URL: api.URL})
	session := CreateSession{IdempotencyKey: "order-4711", Handler: "echo", Metadata: map[string]any{"a": 1, "b": 2}}
	for range 2 { // as two processes would
		if _, err := client.CreateSession(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	seen := api.seen()
	first, _ := json.Marshal(seen[0].body)
	second, _ := json.Marshal(seen[1].body)
	if !bytes.Equal(first, second) || seen[0].key != seen[1].key {
		t.Errorf("the API would see another body under the same key: %s, %s", first, second)
	}
}

// hang takes a request, says so, and never answers.
func hang(carried chan<- struct{}) func(http.ResponseWriter, *http.Request) {
	return func(_ http.ResponseWriter, r *http.Request) {
		carried <- struct{}{}
		<-r.Context().Done()
	}
}

func TestScenario_K26_AReplayWhileTheFirstRunsWaitsForItsPlacement(t *testing.T) {
	t.Parallel()
	carried := make(chan struct{}, 1)
	answers := []func(http.ResponseWriter, *http.Request){hang(carried)}
	for range 8 { // more often than a failure would be retried
		answers = append(answers, inFlight())
	}
	api := newFakeAPI(t, append(answers, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Idempotent-Replayed", "true")
		answerJSON(201, anyPlacement)(w, r)
	})...)
	client, naps := testClient(t, Config{URL: api.URL, AttemptTimeout: time.Second})
	p, err := client.CreateSession(t.Context(), CreateSession{})
	if err != nil || p.Generation != anyPlacement.Generation || !p.Replayed {
		t.Fatalf("%+v, %v", p, err)
	}
	receive(t, carried, "the first attempt")
	seen := api.seen()
	for i, r := range seen {
		if r.key != seen[0].key || r.body["id"] != seen[0].body["id"] {
			t.Errorf("attempt %d is another request than the first", i)
		}
	}
	for i, wait := range naps.all()[1:] {
		if wait < time.Second || wait > 1250*time.Millisecond {
			t.Errorf("asked again after %s, want the second that the API named (%d)", wait, i)
		}
	}
}

func TestScenario_K26_AReplayAfterATimeoutGetsTheOnePlacement(t *testing.T) {
	t.Parallel()
	carried := make(chan struct{}, 1)
	api := newFakeAPI(t, hang(carried), answerJSON(200, anyPlacement)) // it was carried out, but its answer came too late
	client, _ := testClient(t, Config{URL: api.URL, AttemptTimeout: time.Second})
	p, err := client.CreateSession(t.Context(), CreateSession{ID: "s-1"})
	if err != nil || p.Generation != anyPlacement.Generation || p.Replayed {
		t.Fatalf("%+v, %v", p, err)
	}
	receive(t, carried, "the first attempt")
	for _, r := range api.seen() {
		if r.body["id"] != "s-1" {
			t.Errorf("an attempt named %v", r.body["id"])
		}
	}
}

func TestScenario_K26_ARequestThatIsInFlightForEverIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := offline(t, func(int) *http.Response { return problemResponse(http.StatusConflict, CodeConflict, true, "1") })
		start := time.Now()
		_, err := client.CreateSession(t.Context(), CreateSession{Wait: 10 * time.Second})
		// 15 s for what the API does, and the 10 s that it may let it wait. It asks each second, and never beyond that.
		if took := time.Since(start); ErrorCode(err) != CodeConflict || !IsRetryable(err) || took < 23*time.Second || took > 25*time.Second {
			t.Errorf("gave up after %s with %v", took, err)
		}
	})
}

func TestScenario_K26_AConflictThatLastsIsFinal(t *testing.T) {
	t.Parallel()
	for code, status := range map[Code]int{CodeConflict: 409, CodeSessionEnded: 410, CodeIdempotencyMismatch: 422} {
		api := newFakeAPI(t, refuse(status, code), answerJSON(201, anyPlacement))
		client, _ := testClient(t, Config{URL: api.URL})
		_, err := client.CreateSession(t.Context(), CreateSession{IdempotencyKey: "order-4711"})
		if ErrorCode(err) != code || IsRetryable(err) || len(api.seen()) != 1 {
			t.Errorf("%s: %d attempts, %v", code, len(api.seen()), err)
		}
	}
}
