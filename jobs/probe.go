package jobs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/berth"
)

// maxProbeBody bounds what is read of an answer.
const maxProbeBody = 4 << 10

// HTTPProber asks GET {control_url}/livez, which answers {"worker_id","instance"}.
type HTTPProber struct {
	client *http.Client
}

// NewHTTPProber makes a prober that waits for an answer up to timeout; zero: one second.
func NewHTTPProber(timeout time.Duration) *HTTPProber {
	return &HTTPProber{client: controlClient(cmp.Or(timeout, time.Second))}
}

// identity is who answers on a control address.
type identity struct {
	WorkerID string         `json:"worker_id"`
	Instance berth.Instance `json:"instance"`
}

// Probe says dead only on proof: the port refuses, or another instance answers there. An answer that names no instance
// may be a proxy's, and proves nothing.
func (p *HTTPProber) Probe(ctx context.Context, s berth.Sighting) berth.ProbeResult {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.ControlURL, "/")+"/livez", nil)
	if err != nil {
		return berth.ProbeUnknown
	}
	response, err := p.client.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return berth.ProbeDead
	}
	if err != nil {
		return berth.ProbeUnknown
	}
	defer func() { _ = response.Body.Close() }() // read to its bound; nothing is left to lose
	var answer identity
	if err := json.UnmarshalRead(io.LimitReader(response.Body, maxProbeBody), &answer); err != nil {
		return berth.ProbeUnknown
	}
	switch {
	case response.StatusCode != http.StatusOK || answer.WorkerID == "" || answer.Instance == 0:
		return berth.ProbeUnknown
	case answer.WorkerID == s.WorkerID && answer.Instance == s.Instance:
		return berth.ProbeAlive
	default:
		return berth.ProbeDead
	}
}
