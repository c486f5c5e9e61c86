package worker

import (
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

// signalingHandler serves clients and balancers.
//
//	/rtc     the WebSocket
//	/livez   200 while the process serves HTTP
//	/readyz  200 while sessions that are placed here are served: also when draining or in doubt, since a failed check
//	         makes balancers cut live flows
//	/availz  200 while new sessions are welcome
func (w *Worker) signalingHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /rtc", w.hub)
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) { health(rw, true, "live") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		where := w.keeper.status.load().phase
		health(rw, where == phaseServing || where == phaseDraining || where == phaseDoubt, string(where))
	})
	mux.HandleFunc("GET /availz", func(rw http.ResponseWriter, _ *http.Request) {
		where := w.keeper.status.load().phase
		health(rw, where == phaseServing, string(where))
	})
	return mux
}

// controlHandler serves the platform: the reaper's probe, a sweep's question, metrics, nudges.
func (w *Worker) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", w.probe)
	mux.HandleFunc("GET /sockets", w.sockets)
	mux.Handle("GET /metrics", promhttp.HandlerFor(w.deps.Metrics, promhttp.HandlerOpts{Registry: w.deps.Metrics}))
	mux.HandleFunc("POST /nudge", w.nudge)
	return mux
}

// identity is the answer to the reaper's probe: who lives here.
type identity struct {
	WorkerID string         `json:"worker_id"`
	Instance berth.Instance `json:"instance"` // zero: none yet
}

// probe tells the reaper which instance this process is. It asks nobody, so it answers while the database is away.
func (w *Worker) probe(rw http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(identity{WorkerID: w.config.WorkerID, Instance: w.keeper.status.load().instance})
	if err != nil {
		http.Error(rw, "identity not encoded", http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Cache-Control", "no-store")
	_, _ = rw.Write(body) // because the prober that hung up learns nothing from an error here
}

// nudge makes an order prompt that comes with the answer to the next renewal. It is signed, as a bearer token.
func (w *Worker) nudge(rw http.ResponseWriter, r *http.Request) {
	instance := w.keeper.status.load().instance
	nudge, _ := auth.ParseBearer(r.Header.Get("Authorization"))
	if w.deps.Verifier.VerifyNudge(r.Context(), nudge, instance, w.keeper.clock.Now()) != nil {
		http.Error(rw, "signature not accepted", http.StatusUnauthorized)
		return
	}
	w.keeper.nudge()
	rw.WriteHeader(http.StatusAccepted)
}

func health(rw http.ResponseWriter, ok bool, text string) {
	rw.Header().Set("Cache-Control", "no-store")
	if !ok {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(rw, text+"\n") // because a checker that hung up learns nothing from an error here
}

// server returns an HTTP server that no slow client can tire: a handshake has seconds, headers are small.
func (w *Worker) server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: w.config.HeaderTimeout,
		ReadTimeout:       10 * time.Second, // net/http lifts it when a connection is hijacked
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}
