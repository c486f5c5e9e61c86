package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// readTimeout bounds a request's arrival. Measurements are far shorter.
const readTimeout = time.Minute

// Serve answers on listener until ctx ends. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, cfg Config) error {
	assigner, err := newAssigner(ctx, cfg)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if assigner != nil {
		defer assigner.close()
	}
	server := &http.Server{Handler: routes(assigner), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // nobody waits for the answers that are cut off
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// routes serves placements, and tells at /readyz that it does.
func routes(assigner assigner) http.Handler {
	router := chi.NewRouter()
	router.Get("/readyz", func(http.ResponseWriter, *http.Request) {})
	if assigner == nil {
		router.Post("/v1/sessions", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
		return router
	}
	router.Post("/v1/sessions", func(w http.ResponseWriter, r *http.Request) { place(w, r, assigner) })
	return router
}

// placement is a request and, with its owner, the answer.
type placement struct {
	ID     string `json:"id"`
	Region string `json:"region"`
	Owner  string `json:"owner,omitempty"`
}

func place(w http.ResponseWriter, r *http.Request, assigner assigner) {
	var p placement
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	owner, err := assigner.assign(r.Context(), p.ID, p.Region)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	p.Owner = owner
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(p) // a caller that left needs no answer
}
