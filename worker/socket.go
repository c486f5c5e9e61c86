package worker

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/signaling"
)

// socketList is the answer to a sweep: who lives here, and which connections of peers it holds.
type socketList struct {
	identity

	Sockets []signaling.Socket `json:"sockets"`
}

// sockets answers a sweep. It is signed as a nudge is, since it names sessions; it asks nobody.
func (w *Worker) sockets(rw http.ResponseWriter, r *http.Request) {
	instance := w.keeper.status.load().instance
	question, _ := auth.ParseBearer(r.Header.Get("Authorization"))
	if w.deps.Verifier.VerifyNudge(r.Context(), question, instance, w.keeper.clock.Now()) != nil {
		http.Error(rw, "signature not accepted", http.StatusUnauthorized)
		return
	}
	body, err := json.Marshal(socketList{
		identity: identity{WorkerID: w.config.WorkerID, Instance: instance}, Sockets: w.hub.Sockets(),
	})
	if err != nil {
		http.Error(rw, "sockets not encoded", http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Cache-Control", "no-store")
	_, _ = rw.Write(body) // because an asker that hung up learns nothing from an error here
}
