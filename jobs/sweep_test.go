package jobs_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/jobs"
)

func TestAnswersOfASweep(t *testing.T) {
	t.Parallel()
	const w1 = `{"worker_id":"w1","instance":7,"sockets":[{"id":"c1","session":"s1","generation":3,"peer":"p1","role":"offer"},{"id":"c2"}]}`
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   jobs.Answer
	}{
		"same instance": {says(200, w1), jobs.Answer{Reply: jobs.ReplyGiven, Sockets: 2}},
		"members of a later version": {
			says(200, `{"worker_id":"w1","instance":7,"version":"9","sockets":[{"id":"c1","agent":"x"}]}`),
			jobs.Answer{Reply: jobs.ReplyGiven, Sockets: 1},
		},
		"without sockets":        {says(200, `{"worker_id":"w1","instance":7}`), jobs.Answer{Reply: jobs.ReplyGiven}},
		"newer instance":         {says(200, `{"worker_id":"w1","instance":8}`), jobs.Answer{Reply: jobs.ReplyRefused}},
		"another worker":         {says(200, `{"worker_id":"w2","instance":7}`), jobs.Answer{Reply: jobs.ReplyRefused}},
		"a page":                 {says(200, "<html>ok</html>"), jobs.Answer{Reply: jobs.ReplyAbsent}},
		"a version without it":   {says(404, "not found"), jobs.Answer{Reply: jobs.ReplyAbsent}},
		"a key it does not know": {says(401, "who are you"), jobs.Answer{Reply: jobs.ReplyLate}},
		"a connection that breaks": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, jobs.Answer{Reply: jobs.ReplyAbsent},
		},
		"silence": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, jobs.Answer{Reply: jobs.ReplyLate}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 10 * time.Second
			if name == "silence" {
				timeout = 50 * time.Millisecond
			}
			mux := http.NewServeMux()
			mux.HandleFunc("GET /sockets", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer trust me" {
					t.Errorf("signed by %q", r.Header.Get("Authorization"))
				}
				test.answer(w, r)
			})
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			s := berth.Sighting{WorkerID: "w1", Instance: 7, ControlURL: server.URL}
			if got := jobs.NewHTTPAsker(timeout, unsigned).Ask(t.Context(), s, time.Now()); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestWorkerWithoutAnybodyListeningIsAbsentFromASweep(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]jobs.Reply{
		"http://127.0.0.1:1": jobs.ReplyRefused, "": jobs.ReplyAbsent, "://": jobs.ReplyAbsent, "http://[::1": jobs.ReplyAbsent,
	} {
		s := berth.Sighting{WorkerID: "w1", Instance: 7, ControlURL: address}
		if got := jobs.NewHTTPAsker(time.Second, unsigned).Ask(t.Context(), s, time.Now()); got.Reply != want {
			t.Errorf("%q: got %+v", address, got)
		}
	}
}

// What we could not ask says nothing about the worker.
func TestQuestionThatWasNotAskedProvesNothing(t *testing.T) {
	t.Parallel()
	s := berth.Sighting{WorkerID: "w1", Instance: 7, ControlURL: "http://127.0.0.1:1"}
	noKey := func(context.Context, string, berth.Instance, time.Time) (string, error) {
		return "", errors.New("no key")
	}
	if got := jobs.NewHTTPAsker(0, noKey).Ask(t.Context(), s, time.Now()); got.Reply != jobs.ReplyLate {
		t.Errorf("unsigned: %+v", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got := jobs.NewHTTPAsker(0, unsigned).Ask(over, s, time.Now()); got.Reply != jobs.ReplyLate {
		t.Errorf("cancelled: %+v", got)
	}
}

// A question that this process's clock had dated might be too old or too new for the worker.
func TestQuestionsOfASweepAreDatedByTheDatabase(t *testing.T) {
	t.Parallel()
	store := newFakeStore()
	store.add("w1", 1)
	var dated time.Time
	refuse := func(_ context.Context, _ string, _ berth.Instance, now time.Time) (string, error) {
		dated = now
		return "", errors.New("no key")
	}
	numbers := detection
	numbers.Detector = berth.DetectSweep
	detector, err := jobs.NewDetector(numbers, store, nil, jobs.NewHTTPAsker(0, refuse))
	if err != nil {
		t.Fatal(err)
	}
	tick, err := store.BeginTick(t.Context(), time.Second, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	sight, err := detector.Look(t.Context(), berth.Look{Tick: tick.Number})
	if err != nil || sight.At.IsZero() || !dated.Equal(sight.At) {
		t.Errorf("dated %v, the look %v: %v", dated, sight.At, err)
	}
}
