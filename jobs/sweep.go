package jobs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// asks is how many workers a sweep asks at a time.
	asks = 256
	// maxAnswer bounds what is read of one answer: the descriptions of some 50,000 connections.
	maxAnswer = 16 << 20
)

// Reply is how a worker replied when it was asked.
type Reply string

// The replies.
const (
	ReplyGiven   Reply = "given"   // by the instance that was asked for
	ReplyLate    Reply = "late"    // its host took the question, and nobody answered in time: it is paused, or busy
	ReplyAbsent  Reply = "absent"  // nobody was reached, or something that is no worker
	ReplyRefused Reply = "refused" // nobody listens there, or another instance: proven
)

// Answer is what came of one question.
type Answer struct {
	Reply   Reply
	Sockets int
}

// sweep: who is missing is not there when all are asked who they are and which sockets they hold. A second look that does
// not find it either confirms it, at once if its port refuses; otherwise the network may be at fault, so its lease must be
// over as well. A worker that is merely paused answers late, so it is not missing.
type sweep struct {
	store     LookStore
	asker     Asker
	detection berth.Detection
}

// Look asks every worker at once and merges the answers.
func (w sweep) Look(ctx context.Context, look berth.Look) (Sight, error) {
	view, err := w.store.Look(ctx, look)
	if err != nil {
		return Sight{}, err
	}
	answers := make([]Answer, len(view.Workers))
	var group errgroup.Group
	group.SetLimit(asks)
	for i, s := range view.Workers {
		group.Go(func() error {
			answers[i] = w.asker.Ask(ctx, s, view.At)
			return nil
		})
	}
	_ = group.Wait() // an answer that did not come is one, too
	sight := Sight{View: mark(view, evidenceNoAnswer, func(i int, _ berth.Sighting) bool {
		return answers[i].Reply == ReplyAbsent || answers[i].Reply == ReplyRefused
	})}
	for i, answer := range answers {
		sight.Workers[i].Proven = answer.Reply == ReplyRefused
		sight.Sockets += answer.Sockets
	}
	return sight, ctx.Err() // whoever was asked after the end of ctx was not absent
}

// Confirm has its evidence: the sighting is that of the second look.
func (w sweep) Confirm(_ context.Context, s berth.Sighting) (berth.Verdict, string) {
	if s.Proven {
		return berth.VerdictDead, evidenceAbsent
	}
	return w.detection.Probed(s, berth.ProbeUnknown), evidenceSilent
}

// SignFunc signs a question to one instance of a worker.
type SignFunc func(ctx context.Context, workerID string, instance berth.Instance, now time.Time) (string, error)

// HTTPAsker asks GET {control_url}/sockets, which answers {"worker_id","instance","sockets":[...]}.
type HTTPAsker struct {
	client *http.Client
	sign   SignFunc
}

// NewHTTPAsker makes an asker that waits for an answer up to timeout; zero: one second. The worker knows by the signature
// that it is the platform that asks.
func NewHTTPAsker(timeout time.Duration, sign SignFunc) *HTTPAsker {
	return &HTTPAsker{client: controlClient(cmp.Or(timeout, time.Second)), sign: sign}
}

// controlClient asks workers on their control addresses.
func controlClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout: timeout,
		// A connection kept from before would say something about then, and a redirect something about another.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// socketList is the worker's answer.
type socketList struct {
	identity

	Sockets []socket `json:"sockets"`
}

// socket describes a connection of a worker's answer.
type socket struct {
	ID         string           `json:"id"`
	Session    string           `json:"session"`
	Generation berth.Generation `json:"generation"`
	Peer       string           `json:"peer"`
	Role       string           `json:"role"`
}

// Ask takes a refusal and the answer of another instance for proof, and silence on a connection that was accepted for a pause. What could
// not be asked is late, too: that says nothing about the worker. now is the database's time, by which workers judge signatures.
func (a *HTTPAsker) Ask(ctx context.Context, s berth.Sighting, now time.Time) Answer {
	token, err := a.sign(ctx, s.WorkerID, s.Instance, now)
	if err != nil {
		return Answer{Reply: ReplyLate}
	}
	var accepted atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { accepted.Store(true) }})
	request, err := http.NewRequestWithContext(traced, http.MethodGet, strings.TrimSuffix(s.ControlURL, "/")+"/sockets", nil)
	if err != nil {
		return Answer{Reply: ReplyAbsent}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	list, status, err := a.fetch(request)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Answer{Reply: ReplyRefused}
	case ctx.Err() != nil, err != nil && accepted.Load() && timedOut(err):
		return Answer{Reply: ReplyLate}
	case err != nil:
		return Answer{Reply: ReplyAbsent}
	case status == http.StatusUnauthorized || status == http.StatusServiceUnavailable:
		return Answer{Reply: ReplyLate} // it does not know our key yet
	case status != http.StatusOK || list.WorkerID == "" || list.Instance == 0:
		return Answer{Reply: ReplyAbsent}
	case list.WorkerID != s.WorkerID || list.Instance != s.Instance:
		return Answer{Reply: ReplyRefused}
	default:
		return Answer{Reply: ReplyGiven, Sockets: len(list.Sockets)}
	}
}

func (a *HTTPAsker) fetch(request *http.Request) (list socketList, status int, err error) {
	response, err := a.client.Do(request)
	if err != nil {
		return list, 0, err
	}
	defer func() { _ = response.Body.Close() }() // read to its bound; nothing is left to lose
	if response.StatusCode != http.StatusOK {
		return list, response.StatusCode, nil
	}
	err = json.UnmarshalRead(io.LimitReader(response.Body, maxAnswer), &list)
	return list, response.StatusCode, err
}

func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}
