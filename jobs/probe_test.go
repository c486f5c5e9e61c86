package jobs_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/jobs"
)

// livez answers GET /livez.
func livez(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", answer)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	const w1 = `{"worker_id":"w1","instance":7}`
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   berth.ProbeResult
	}{
		"same instance":              {says(200, w1), berth.ProbeAlive},
		"members of a later version": {says(200, `{"worker_id":"w1","instance":7,"version":"9"}`), berth.ProbeAlive},
		"newer instance":             {says(200, `{"worker_id":"w1","instance":8}`), berth.ProbeDead},
		"another worker":             {says(200, `{"worker_id":"w2","instance":7}`), berth.ProbeDead},
		"no instance yet":            {says(200, `{"worker_id":"w1","instance":0}`), berth.ProbeUnknown},
		"something without a name":   {says(200, `{}`), berth.ProbeUnknown},
		"a page":                     {says(200, "<html>ok</html>"), berth.ProbeUnknown},
		"nothing":                    {says(200, ""), berth.ProbeUnknown},
		"null":                       {says(200, "null"), berth.ProbeUnknown},
		"a proxy's error":            {says(503, `{"error":"no upstream"}`), berth.ProbeUnknown},
		"another, in an error":       {says(500, `{"worker_id":"w2","instance":9}`), berth.ProbeUnknown},
		"too much":                   {says(200, `{"pad":"`+strings.Repeat("x", 1<<20)+`","worker_id":"w1","instance":7}`), berth.ProbeUnknown},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/livez", http.StatusFound)
		}, berth.ProbeUnknown},
		"a connection that breaks": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, berth.ProbeUnknown},
		"silence":                  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, berth.ProbeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 10 * time.Second
			if name == "silence" {
				timeout = 50 * time.Millisecond
			}
			prober := jobs.NewHTTPProber(timeout)
			for _, suffix := range []string{"", "/"} {
				s := berth.Sighting{WorkerID: "w1", Instance: 7, ControlURL: livez(t, test.answer) + suffix}
				if got := prober.Probe(t.Context(), s); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			}
		})
	}
}

func TestProbeOfAClosedPortIsAProof(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s := berth.Sighting{WorkerID: "w1", Instance: 7, ControlURL: "http://" + address}
	if got := jobs.NewHTTPProber(0).Probe(t.Context(), s); got != berth.ProbeDead {
		t.Errorf("got %s", got)
	}
}

func TestProbeOfAnUnusableAddressProvesNothing(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "://", "http://", "http://host.invalid:1", "ftp://127.0.0.1", "http://[::1"} {
		s := berth.Sighting{WorkerID: "w1", Instance: 7, ControlURL: address}
		if got := jobs.NewHTTPProber(time.Second).Probe(t.Context(), s); got != berth.ProbeUnknown {
			t.Errorf("%q: got %s", address, got)
		}
	}
}
