package auth

import (
	"context"
	"errors"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

const (
	// NudgeLife is how long a signed nudge is good. Nudges are sent at once or not at all.
	NudgeLife = 30 * time.Second

	nudgeType = "berth-nudge+jwt"
)

// nudgePayload is the JWT body of a nudge.
type nudgePayload struct {
	registered

	Instance berth.Instance `json:"instance"`
}

// SignNudge signs a request to one instance of a worker to look at its orders now. It carries no order:
// those come from the database, so a nudge that is replayed or lost does no harm.
func (s *Signer) SignNudge(ctx context.Context, workerID string, instance berth.Instance, now time.Time) (string, error) {
	if !berth.ValidID(workerID) || instance <= 0 {
		return "", errors.New("sign nudge: worker must be an id and instance positive")
	}
	return sign(ctx, s.keys, nudgeType, nudgePayload{registered: register(workerID, now, NudgeLife), Instance: instance}, now)
}

// VerifyNudge checks that a nudge is for this instance of the worker. Errors are those of Verify.
func (v *Verifier) VerifyNudge(ctx context.Context, nudge string, instance berth.Instance, now time.Time) error {
	var payload nudgePayload
	if err := verify(ctx, v.keys, nudgeType, v.workerID, nudge, &payload, now); err != nil {
		return err
	}
	if payload.Instance != instance {
		return ErrTokenAudience
	}
	return nil
}
