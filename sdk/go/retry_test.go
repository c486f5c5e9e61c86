package berth

import (
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		value string
		date  string // the answer's Date
		want  time.Duration
	}{
		"seconds":                     {value: "5", want: 5 * time.Second},
		"seconds with white space":    {value: " 5\t", want: 5 * time.Second},
		"leading zeros":               {value: "005", want: 5 * time.Second},
		"zero":                        {value: "0"},
		"absent":                      {value: ""},
		"signed":                      {value: "+3"},
		"negative":                    {value: "-3"},
		"decimal":                     {value: "1.5"},
		"exponent":                    {value: "1e3"},
		"hexadecimal":                 {value: "0x10"},
		"unit":                        {value: "5s"},
		"list":                        {value: "5, 6"},
		"other digits":                {value: "５"},
		"overflow of nanoseconds":     {value: "9223372037", want: forever},
		"largest that fits":           {value: "9223372036", want: 9223372036 * time.Second},
		"IMF-fixdate":                 {value: "Mon, 30 Nov 2026 12:00:05 GMT", want: 5 * time.Second},
		"RFC 850":                     {value: "Monday, 30-Nov-26 12:00:05 GMT", want: 5 * time.Second},
		"asctime":                     {value: "Mon Nov 30 12:00:05 2026", want: 5 * time.Second},
		"asctime with one-digit day":  {value: "Tue Dec  1 12:00:00 2026", want: 24 * time.Hour},
		"past date":                   {value: "Mon, 30 Nov 2026 11:59:30 GMT"},
		"this second":                 {value: "Mon, 30 Nov 2026 12:00:00 GMT"},
		"RFC 850 of the last century": {value: "Sunday, 06-Nov-94 08:49:37 GMT"},
		"RFC 850 in fifty years":      {value: "Monday, 30-Nov-76 12:00:00 GMT", want: time.Date(2076, 11, 30, 12, 0, 0, 0, time.UTC).Sub(now)},
		"zone that is not GMT":        {value: "Monday, 30-Nov-26 12:00:05 PST"},
		"not a date":                  {value: "tomorrow"},
		"date of the far future":      {value: "Fri, 31 Dec 9999 23:59:59 GMT", want: forever},
		"clocks that disagree": {
			value: "Mon, 30 Nov 2026 15:00:05 GMT", date: "Mon, 30 Nov 2026 15:00:00 GMT", want: 5 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			header.Set("Retry-After", test.value)
			header.Set("Date", test.date)
			got, ok := parseRetryAfter(header, now)
			if got != test.want || ok != (test.want > 0) {
				t.Errorf("parseRetryAfter(%q) = %s, %t; want %s", test.value, got, ok, test.want)
			}
		})
	}
}

func TestRetryAfterNeverNegativeOrPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[+-]?[0-9]{1,400}(\.[0-9]+)?`),
			rapid.StringMatching(`(Mon|Tue), [0-9]{2} Nov [0-9]{4} [0-9]{2}:00:00 GMT`),
		).Draw(t, "value")
		d, ok := parseRetryAfter(http.Header{"Retry-After": {value}}, time.Unix(1_800_000_000, 0))
		if d < 0 || ok != (d > 0) {
			t.Fatalf("got %s, %t", d, ok)
		}
	})
}

func TestDecisionKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := retryLimits{
			maxRetries: rapid.IntRange(0, 5).Draw(t, "max_retries"),
			maxWait:    time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "max_wait")),
		}
		o := outcome{
			retries:    rapid.IntRange(0, 100).Draw(t, "retries"),
			status:     rapid.SampledFrom([]int{0, 400, 404, 408, 409, 425, 429, 500, 502, 503, 504}).Draw(t, "status"),
			code:       rapid.SampledFrom([]Code{"", CodeConcurrentSessions, CodeSessionStartRateLimited}).Draw(t, "code"),
			retryAfter: time.Duration(rapid.Int64Min(0).Draw(t, "retry_after")),
			inFlight:   rapid.Bool().Draw(t, "in_flight"),
			remaining:  time.Duration(rapid.Int64Min(0).Draw(t, "remaining")),
		}
		unit := rapid.Float64Range(0, 0.999999)
		wait, again := decide(o, limits, unit.Draw(t, "backoff"), unit.Draw(t, "spread"))
		switch {
		case wait < 0:
			t.Fatalf("negative wait %s", wait)
		case again && o.retries >= limits.maxRetries:
			t.Fatal("more retries than allowed")
		case again && wait < o.retryAfter:
			t.Fatalf("%s is earlier than the server asked", wait)
		case again && wait >= o.remaining:
			t.Fatal("waits into the deadline")
		case again && scale(limits.maxWait, 1+callJitter) < wait:
			t.Fatalf("%s is longer than the limit %s", wait, limits.maxWait)
		case again && o.status == 429 && o.code != CodeSessionStartRateLimited:
			t.Fatal("retries a limit that does not pass")
		}
	})
}

func TestBackoffWindowDoublesToItsLimit(t *testing.T) {
	t.Parallel()
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second}
	for n, w := range want {
		if got := window(callBackoffBase, callBackoffCap, n); got != w {
			t.Errorf("window %d is %s, want %s", n, got, w)
		}
	}
	if got := window(time.Second, time.Minute, 1_000_000); got != time.Minute {
		t.Errorf("a large n overflows to %s", got)
	}
}
