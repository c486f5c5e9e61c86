package socket_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/berthdev/berth/bench/socket"
	sdk "github.com/berthdev/berth/sdk/go"
)

func TestPlacingWaitsForAnAPIThatIsAway(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ ID, Kind, Region string }
		switch err := json.NewDecoder(r.Body).Decode(&body); {
		case asked.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil || r.URL.Path != "/v1/sessions" || r.Header.Get("Authorization") != "Bearer k" || body.Kind != "call":
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"id":"` + body.ID + `","owner":{"worker_id":"w-` + body.Region + `"}}`))
		}
	}))
	t.Cleanup(server.Close)
	api := socket.NewAPI(server.URL, "k")
	t.Cleanup(api.Close)
	if p, err := api.Place(t.Context(), "c-1", "a", "local"); err != nil || p.ID != "c-1" || p.Owner.WorkerID != "w-local" {
		t.Errorf("%+v, %v", p, err)
	}
	_, err := api.Rejoin(t.Context(), &sdk.Placement{ID: "c-1", RejoinToken: "r"})
	if refused, ok := errors.AsType[*socket.StatusError](err); !ok || refused.Status != http.StatusBadRequest {
		t.Errorf("%v: it was answered", err)
	}
}

func TestPublishSendsData(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Data map[string]int }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Data["n"] != 7 || r.URL.Path != "/v1/topics/room:1/messages" {
			t.Errorf("%s: %+v, %v", r.URL.Path, body, err)
		}
		_, _ = w.Write([]byte(`{"topic":"room:1","epoch":"e","offset":3,"processes":2}`))
	}))
	t.Cleanup(server.Close)
	api := socket.NewAPI(server.URL, "k")
	t.Cleanup(api.Close)
	if p, err := api.Publish(t.Context(), "room:1", []byte(`{"n":7}`)); err != nil || p.Offset != 3 || p.Processes != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}
