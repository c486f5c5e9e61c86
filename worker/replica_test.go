package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// askOnce asks a replica that handle stands for.
func askOnce(t *testing.T, handle http.HandlerFunc, held []berth.Held) (berth.RenewalAnswer, []berth.Dropped, error) {
	t.Helper()
	server := httptest.NewServer(handle)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return httpReplicas([]string{server.URL + "/"})[0].renew(ctx, "secret", berth.Renewal{
		WorkerID: "w-1", Instance: 7, Count: 2, Digest: 255, Lease: 6 * time.Second,
	}, held)
}

func TestReplicaIsAskedAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		held []berth.Held
		want any
	}{
		"without a list": {nil, nil},
		"with a list": {
			[]berth.Held{{Key: 1 << 60, Generation: 3}},
			[]any{map[string]any{"key": json.Number("1152921504606846976"), "generation": json.Number("3")}},
		},
		"with a list of none": {[]berth.Held{}, []any{}},
	} {
		_, _, err := askOnce(t, func(w http.ResponseWriter, r *http.Request) {
			decoder := json.NewDecoder(r.Body)
			decoder.UseNumber()
			var body map[string]any
			if err := decoder.Decode(&body); err != nil {
				t.Error(err)
			}
			want := map[string]any{
				"instance": json.Number("7"), "count": json.Number("2"), "digest": "00000000000000ff", "lease_ms": json.Number("6000"),
			}
			if test.want != nil {
				want["held"] = test.want
			}
			if !reflect.DeepEqual(body, want) {
				t.Errorf("%s: sent %v, want %v", name, body, want)
			}
			if r.Method != http.MethodPost || r.URL.Path != "/v1/workers/w-1/renewal" || r.Header.Get("Authorization") != "Bearer secret" ||
				r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %s %s %v", name, r.Method, r.URL, r.Header)
			}
			_, _ = w.Write([]byte(`{"verdict":"over","matched":false,"at":"2026-01-05T10:00:00Z","dropped":[]}`))
		}, test.held)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReplicasAnswerIsReadWhole(t *testing.T) {
	t.Parallel()
	answer, dropped, err := askOnce(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"verdict":"yours","state":"draining","drain_deadline":"2026-01-05T11:00:00Z","matched":true,
			"at":"2026-01-05T10:00:00.5Z","expires_at":"2026-01-05T10:00:06.5Z","of_a_later_version":1,
			"dropped":[{"key":5,"generation":6,"ended":true,"reason":"deleted"},{"key":7,"generation":8,"ended":false}]}`))
	}, nil)
	at := time.Date(2026, 1, 5, 10, 0, 0, 500_000_000, time.UTC)
	want := berth.RenewalAnswer{
		Verdict: berth.RenewalYours, State: berth.WorkerDraining, DrainDeadline: at.Truncate(time.Second).Add(time.Hour), Matched: true,
		At: at, ExpiresAt: at.Add(6 * time.Second),
	}
	wantDropped := []berth.Dropped{
		{Held: berth.Held{Key: 5, Generation: 6}, Ended: true, Reason: berth.EndedDeleted},
		{Held: berth.Held{Key: 7, Generation: 8}},
	}
	if err != nil || answer != want || !reflect.DeepEqual(dropped, wantDropped) {
		t.Errorf("got %+v %+v, %v", answer, dropped, err)
	}
}

func TestOnlyAnAPIsAnswerBreaksTheSilence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		heard  bool
	}{
		"the database is away":     {503, `{"code":"unavailable","detail":"The database is away."}`, true},
		"the secret is unknown":    {401, `{"code":"unauthenticated"}`, true},
		"an API without the route": {404, `{"code":"not_found"}`, true},
		"a balancer without APIs":  {502, `<html>bad gateway</html>`, false},
		"a balancer that has JSON": {503, `{"message":"no healthy upstream"}`, false},
		"somebody else's page":     {200, `<html>welcome</html>`, false},
		"somebody else's JSON":     {200, `{"status":"ok"}`, false},
		"a verdict of no kind":     {200, `{"verdict":"perhaps","matched":true,"at":"2026-01-05T10:00:00Z","dropped":[]}`, false},
		"a redirect":               {307, ``, false},
		"nothing":                  {200, ``, false},
	} {
		_, _, err := askOnce(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.body))
		}, nil)
		if err == nil || errors.Is(err, errNoVerdict) != test.heard {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestReplicaThatHangsTakesNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released }))
	defer server.Close()
	defer close(released)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := httpReplicas([]string{server.URL})[0].renew(ctx, "secret", berth.Renewal{WorkerID: "w-1"}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNoVerdict) {
		t.Errorf("got %v", err)
	}
}

func TestAPIURLsAreChecked(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"http://api:8080": true, "https://api.example.com/berth": true, "api:8080": false, "ftp://api": false, "http://": false, "": false,
	} {
		config := Config{
			WorkerID: "w-1", Capacity: 1, SignalingURL: "ws://x/rtc", ControlURL: "http://x", APIURLs: []string{"http://fine", url},
		}.withDefaults()
		if err := config.validate(); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
}
