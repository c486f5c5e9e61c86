package claim

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthdev/berth/bench/load"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/postgres"
)

// workerPool is how many connections the workers of a measurement have together.
const workerPool = 16

// fillLimit is how long it may take to place the sessions that a measurement starts with.
const fillLimit = 20 * time.Minute

// callSlack is how much longer than a measurement its connections may live.
const callSlack = 30 * time.Second

// placer starts one new session after another over one connection.
type placer struct {
	client  *load.Client
	host    string
	key     string
	prefix  string // of session ids; unique in the database
	started int
	body    []byte
	request []byte
}

// dialPlacer connects to a server, for at most a while.
func dialPlacer(ctx context.Context, address, key, prefix string, life time.Duration) (*placer, error) {
	client, err := load.Dial(ctx, address, time.Now().Add(life+callSlack))
	if err != nil {
		return nil, err
	}
	return &placer{client: client, host: address, key: key, prefix: prefix}, nil
}

// place starts a session and returns the answer.
func (p *placer) place() (load.Response, error) {
	p.started++
	p.body = append(append(p.body[:0], `{"id":"`...), p.prefix...)
	p.body = strconv.AppendInt(p.body, int64(p.started), 10)
	p.body = append(p.body, `","region":"`+region+`"}`...)
	p.request = load.AppendRequest(p.request[:0], http.MethodPost, p.host, "/v1/sessions", p.key, p.body)
	response, err := p.client.Do(p.request)
	if err != nil {
		return load.Response{}, err
	}
	if response.Status != http.StatusCreated {
		return load.Response{}, unexpected(response)
	}
	return response, nil
}

// unexpected quotes an answer that is not a placement.
func unexpected(response load.Response) error {
	hint := ""
	if response.Status == http.StatusServiceUnavailable {
		hint = " (if it is the slots that ran out, give workers more of them)"
	}
	return fmt.Errorf("status %d: %.300s%s", response.Status, response.Body, hint)
}

// Call implements load.Caller.
func (p *placer) Call(context.Context) error {
	_, err := p.place()
	return err
}

// liver takes one session after another through its life.
type liver struct {
	placer    *placer
	store     *postgres.Store
	instances map[string]berth.Instance
}

// answer is what a client and its worker need to know of a placement.
type answer struct {
	Generation berth.Generation `json:"generation"`
	Owner      struct {
		WorkerID string `json:"worker_id"`
	} `json:"owner"`
	Peer struct {
		ID   string `json:"id"`
		Role string `json:"role"`
	} `json:"peer"`
	Token string `json:"token"`
}

// sessionKey is in the token, which the worker reads when a peer connects.
func (a answer) sessionKey() (berth.SessionKey, error) {
	parts := strings.Split(a.Token, ".")
	if len(parts) != 3 {
		return 0, errors.New("the answer's token is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0, fmt.Errorf("decode token: %w", err)
	}
	var body struct {
		SessionKey berth.SessionKey `json:"skey"`
	}
	if err := json.Unmarshal(payload, &body); err != nil {
		return 0, fmt.Errorf("decode token: %w", err)
	}
	return body.SessionKey, nil
}

// Call implements load.Caller: place, connect, leave.
func (l *liver) Call(ctx context.Context) error {
	response, err := l.placer.place()
	if err != nil {
		return err
	}
	var placed answer
	if err := json.Unmarshal(response.Body, &placed); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	key, err := placed.sessionKey()
	if err != nil {
		return err
	}
	held := berth.Held{Key: key, Generation: placed.Generation}
	_, err = l.store.ConnectPeer(ctx, berth.Connect{
		Held: held, WorkerID: placed.Owner.WorkerID, Instance: l.instances[placed.Owner.WorkerID],
		Peer: berth.Peer{ID: placed.Peer.ID, Role: placed.Peer.Role, ConnectionID: "c-" + placed.Peer.ID},
	})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := l.store.EndSessions(ctx, []berth.End{{Held: held, Reason: berth.EndedLeft}}); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}
