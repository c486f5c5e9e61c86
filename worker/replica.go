package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/berthdev/berth/internal/berth"
)

// errNoVerdict means that a replica answered, and does not know either: the database is away from there too.
var errNoVerdict = errors.New("a replica answered, but not for the database")

// maxReplicaAnswer bounds what is read of an answer.
const maxReplicaAnswer = 4 << 20

// replica is an API replica as a worker needs it that does not reach the database.
type replica interface {
	// renew asks in this worker's name; held is nil, or all that it serves. errNoVerdict: the replica does not know. Any
	// other error means that nobody answered.
	renew(ctx context.Context, secret string, r berth.Renewal, held []berth.Held) (berth.RenewalAnswer, []berth.Dropped, error)
}

// httpReplica asks POST {url}/v1/workers/{id}/renewal; see openapi.yaml.
type httpReplica struct {
	url    string // of the API, without a slash at its end
	client *http.Client
}

// httpReplicas makes one for each URL. A URL may lead to many replicas through a balancer.
func httpReplicas(urls []string) []replica {
	client := &http.Client{
		// A connection kept from before may be dead, or lead to the same replica again and again. Workers are internal, so
		// no proxy that the environment names is asked.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the secret is for it alone
	}
	replicas := make([]replica, len(urls))
	for i, url := range urls {
		replicas[i] = &httpReplica{url: strings.TrimSuffix(url, "/"), client: client}
	}
	return replicas
}

// renewalRequest is schema RenewalRequest of openapi.yaml.
type renewalRequest struct {
	Instance berth.Instance `json:"instance"`
	Count    int            `json:"count"`
	Digest   string         `json:"digest"`
	LeaseMS  int64          `json:"lease_ms"`
	Held     []heldSession  `json:"held,omitzero"`
}

type heldSession struct {
	Key        berth.SessionKey `json:"key"`
	Generation berth.Generation `json:"generation"`
}

// renewalReply is schema Renewal of openapi.yaml.
type renewalReply struct {
	Verdict       berth.RenewalVerdict `json:"verdict"`
	State         berth.WorkerState    `json:"state"`
	DrainDeadline time.Time            `json:"drain_deadline"`
	Matched       bool                 `json:"matched"`
	At            time.Time            `json:"at"`
	ExpiresAt     time.Time            `json:"expires_at"`
	Dropped       []droppedSession     `json:"dropped"`
}

type droppedSession struct {
	heldSession

	Ended  bool              `json:"ended"`
	Reason berth.EndedReason `json:"reason"`
}

// renew implements replica.
func (p *httpReplica) renew(
	ctx context.Context, secret string, r berth.Renewal, held []berth.Held,
) (answer berth.RenewalAnswer, dropped []berth.Dropped, err error) {
	request, err := p.request(ctx, secret, r, held)
	if err != nil {
		return answer, nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return answer, nil, fmt.Errorf("ask api replica: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // read to its bound; nothing is left to lose
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReplicaAnswer))
	if err != nil {
		return answer, nil, fmt.Errorf("read answer of api replica: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return answer, nil, refusal(response, body)
	}
	return readReply(body)
}

func (p *httpReplica) request(
	ctx context.Context, secret string, r berth.Renewal, held []berth.Held,
) (*http.Request, error) {
	content := renewalRequest{
		Instance: r.Instance, Count: r.Count, Digest: fmt.Sprintf("%016x", r.Digest), LeaseMS: r.Lease.Milliseconds(),
	}
	if held != nil {
		content.Held = make([]heldSession, len(held))
		for i, h := range held {
			content.Held[i] = heldSession(h)
		}
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode renewal: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/workers/"+r.WorkerID+"/renewal", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("address api replica: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	request.Header.Set("Content-Type", "application/json")
	return request, nil
}

// refusal tells an API that answered, whatever it refused for, from something else that stands in its place, such as a
// balancer without anybody behind it.
func refusal(response *http.Response, body []byte) error {
	var problem struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) == nil && problem.Code != "" {
		return fmt.Errorf("%w: %s: %s", errNoVerdict, problem.Code, problem.Detail)
	}
	return fmt.Errorf("ask api replica: it is no API that answers %s", response.Status)
}

// readReply takes nothing for a verdict that is none.
func readReply(body []byte) (answer berth.RenewalAnswer, dropped []berth.Dropped, err error) {
	var reply renewalReply
	if err := json.Unmarshal(body, &reply); err != nil {
		return answer, nil, errors.New("read answer of api replica: it is no renewal")
	}
	switch reply.Verdict {
	case berth.RenewalYours, berth.RenewalReplaced, berth.RenewalOver:
	default:
		return answer, nil, fmt.Errorf("read answer of api replica: unknown verdict %q", reply.Verdict)
	}
	for _, d := range reply.Dropped {
		dropped = append(dropped, berth.Dropped{Held: berth.Held(d.heldSession), Ended: d.Ended, Reason: d.Reason})
	}
	return berth.RenewalAnswer{
		Verdict: reply.Verdict, State: reply.State, DrainDeadline: reply.DrainDeadline, Matched: reply.Matched,
		At: reply.At, ExpiresAt: reply.ExpiresAt,
	}, dropped, nil
}
