package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/berthdev/berth/api/internal/wire"
	"github.com/berthdev/berth/internal/berth"
)

// wordPattern is the form of roles and handler names.
var wordPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// Reasons that several fields share.
const (
	reasonID     = "must be 1 to 128 of A-Z a-z 0-9 . _ ~ - and begin with a letter or digit"
	reasonRegion = "must be 1 to 32 of a-z 0-9 - and begin with a letter or digit; leave it out for the default"
	reasonWord   = "must be 1 to 32 of a-z 0-9 _ - and begin with a letter"

	reasonLabelName  = "must have a name of 1 to 63 of A-Z a-z 0-9 . _ / - that begins with a letter or digit"
	reasonLabelValue = "must be 1 to 63 of A-Z a-z 0-9 . _ ~ / + - and begin with a letter or digit"
)

// checks gathers what is wrong with a request, so that a caller learns all of it at once.
type checks struct {
	fields []berth.FieldError
}

func (c *checks) require(ok bool, field, reason string) {
	if !ok {
		c.fields = append(c.fields, berth.FieldError{Field: field, Reason: reason})
	}
}

// err is nil when nothing is wrong.
func (c *checks) err() error {
	if len(c.fields) == 0 {
		return nil
	}
	return &berth.Refusal{Code: berth.CodeInvalidArgument, Detail: "The request is not valid.", Fields: c.fields}
}

// sessionID returns what the caller chose, or a fresh id.
func (c *checks) sessionID(chosen *string) string {
	if chosen == nil {
		return berth.NewID("s")
	}
	c.require(berth.ValidID(*chosen), "id", reasonID)
	return *chosen
}

// seconds returns a duration between least and most, or the default when there is none. It never clamps.
func (c *checks) seconds(field string, chosen *int, least, most, otherwise time.Duration) time.Duration {
	if chosen == nil {
		return otherwise
	}
	low, high := int(least/time.Second), int(most/time.Second)
	ok := *chosen >= low && *chosen <= high
	c.require(ok, field, fmt.Sprintf("must be an integer from %d to %d", low, high))
	if !ok {
		return otherwise
	}
	return time.Duration(*chosen) * time.Second
}

// readStart turns a request into what the claim path trusts, every field valid and every default filled in, and what goes
// into tokens only.
func (s *service) readStart(w http.ResponseWriter, r *http.Request, tenantID string) (start berth.Start, said grant, err error) {
	body, err := readBody(w, r, s.cfg.BodyTimeout)
	if err != nil {
		return start, said, err
	}
	request, err := parseBody[wire.SessionRequest](body)
	if err != nil {
		return start, said, err
	}
	var c checks
	start = s.start(&c, tenantID, request)
	peer := value(request.Peer, wire.PeerRequest{})
	said = c.grant("peer.", peer.User, peer.Topics)
	start.Wait = c.wait(r.Header)
	start.IdempotencyKey = c.idempotencyKey(r.Header)
	if err := c.err(); err != nil {
		return start, said, err
	}
	if start.IdempotencyKey != "" {
		start.BodyHash, err = bodyHash(body)
	}
	return start, said, err
}

// start reads the members of a body.
func (s *service) start(c *checks, tenantID string, request wire.SessionRequest) berth.Start {
	start := berth.Start{
		TenantID:     tenantID,
		ID:           c.sessionID(request.ID),
		IDChosen:     request.ID != nil,
		Kind:         berth.SessionKind(value(request.Kind, wire.Media)),
		Peer:         c.peer("peer.", value(request.Peer, wire.PeerRequest{})),
		Region:       value(request.Region, ""),
		Spill:        value(request.Spill, true),
		Handler:      value(request.Handler, berth.DefaultHandler),
		TTL:          c.seconds("ttl_seconds", request.TTLSeconds, berth.MinTTL, berth.MaxTTL, berth.DefaultTTL),
		IdleTimeout:  c.seconds("idle_timeout_seconds", request.IdleTimeoutSeconds, berth.MinIdleTimeout, berth.MaxIdleTimeout, berth.DefaultIdleTimeout),
		OnWorkerLoss: berth.OnWorkerLoss(value(request.OnWorkerLoss, wire.Rejoin)),
		Metadata:     c.metadata(request.Metadata),
		Slots:        value(request.Slots, 1),
		Strategy:     berth.Strategy(value(request.Strategy, "")),
		Selector:     c.selector(value(request.Selector, nil)),
	}
	c.require(wire.SessionKind(start.Kind).Valid(), "kind", "must be media or call")
	if start.Kind == berth.KindCall {
		c.call(request, start)
	}
	c.require(request.Region == nil || berth.ValidRegion(*request.Region), "region", reasonRegion)
	c.require(wire.OnWorkerLoss(start.OnWorkerLoss).Valid(), "on_worker_loss", "must be rejoin, replace or end")
	c.require(slices.Contains(s.cfg.Handlers, start.Handler), "handler", "must be one of "+strings.Join(s.cfg.Handlers, ", "))
	c.require(start.Slots >= 1 && start.Slots <= berth.MaxSlots, "slots", fmt.Sprintf("must be an integer from 1 to %d", berth.MaxSlots))
	c.require(request.Strategy == nil || request.Strategy.Valid(), "strategy", "must be spread or pack; leave it out for the tenant's")
	return start
}

// call checks what a call has other rules for.
func (c *checks) call(request wire.SessionRequest, start berth.Start) {
	c.require(request.Slots == nil, "slots", "must be left out for a call, which takes no slot")
	c.require(request.Strategy == nil, "strategy", "must be left out for a call, which takes no slot")
	c.require(request.Handler == nil, "handler", "must be left out for a call, whose peers have their media with each other")
	c.require(request.OnWorkerLoss == nil, "on_worker_loss", "must be left out for a call, whose peers rejoin")
	c.require(start.Peer.Role == berth.RoleOffer || start.Peer.Role == berth.RoleAnswer, "peer.role",
		"must be offer or answer in a call; leave it out to go by order")
}

// selector checks the labels that a worker must have; none at all is any worker.
func (c *checks) selector(labels wire.Selector) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	if len(labels) > berth.MaxSelectorLabels {
		c.require(false, "selector", fmt.Sprintf("must have at most %d labels", berth.MaxSelectorLabels))
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		field := "selector." + wordOr(name)
		c.require(berth.ValidLabelName(name), field, reasonLabelName)
		c.require(berth.ValidLabelValue(labels[name]), field, reasonLabelValue)
	}
	return labels
}

// peer checks a peer; prefix is what its fields are called under. One without an id stays so: the store knows whether
// the session has a first peer, and a start that is repeated must not add another each time.
func (c *checks) peer(prefix string, request wire.PeerRequest) berth.Peer {
	peer := berth.Peer{ID: value(request.ID, ""), Role: value(request.Role, berth.RoleOffer)}
	c.require(request.ID == nil || berth.ValidID(peer.ID), prefix+"id", reasonID)
	c.require(wordPattern.MatchString(peer.Role), prefix+"role", reasonWord)
	return peer
}

// metadata returns the caller's object without white space, which is what the limit counts.
func (c *checks) metadata(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	text := append(jsontext.Value(nil), raw...)
	c.require(text.Kind() == '{', "metadata", "must be an object")
	if err := text.Compact(); err != nil {
		c.require(false, "metadata", "must be valid JSON")
		return nil
	}
	c.require(len(text) <= berth.MaxMetadataBytes, "metadata", fmt.Sprintf("must be at most %d bytes without white space", berth.MaxMetadataBytes))
	return append(json.RawMessage(nil), text...)
}

// value is what a pointer points to, or the default.
func value[T any](pointer *T, otherwise T) T {
	if pointer == nil {
		return otherwise
	}
	return *pointer
}
