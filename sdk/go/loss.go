package berth

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/coder/websocket"
)

// Why a connection closed for good. Conn.Err wraps one of them.
var (
	// ErrSessionEnded means that the session is over: by a bye, by its limits, by DELETE, or because its worker was
	// lost and it was not to be placed anew.
	ErrSessionEnded = errors.New("berth: session ended")

	// ErrReplaced means that a newer connection of the same peer took over.
	ErrReplaced = errors.New("berth: replaced by a newer connection of this peer")

	// ErrRejected means that the owner refused what this client sent: a bug, or media that its handler cannot take.
	ErrRejected = errors.New("berth: the owner rejected a message")

	// ErrUnauthorized means that the owner refused a fresh token too, or the API the rejoin token.
	ErrUnauthorized = errors.New("berth: token refused")

	// ErrGaveUp means that ConnectConfig.GiveUpAfter passed without a connection.
	ErrGaveUp = errors.New("berth: gave up reconnecting")
)

// Close codes of Berth's own, RFC 6455 section 7.4.2.
const (
	closeBad      = websocket.StatusCode(4400)
	closeToken    = websocket.StatusCode(4401)
	closeEnded    = websocket.StatusCode(4404)
	closeReplaced = websocket.StatusCode(4409)
	closeMoved    = websocket.StatusCode(4410)

	closeLost = websocket.StatusAbnormalClosure // 1006, which no frame carries: the socket broke
)

// CloseError is a close frame that the owner sent.
type CloseError struct {
	Code   int    // RFC 6455 section 7.4, or 4400 and up
	Reason string // for people
}

// Error names code and reason.
func (e *CloseError) Error() string {
	return fmt.Sprintf("closed by the owner: %d %s", e.Code, e.Reason)
}

// loss is the end of one link, or of an attempt to make one.
type loss struct {
	kind       lossKind
	code       websocket.StatusCode // for lossClosed
	retryAfter time.Duration        // wait at least so long; the owner or the API said so
	opened     bool                 // the owner had sent its welcome
	uptime     time.Duration        // from the welcome to the loss
	err        error                // for people and logs
}

type lossKind int

const (
	lossClosed  lossKind = iota // by code; closeLost when the socket broke
	lossRefused                 // the upgrade was answered with 429 or 503
	lossForbids                 // the upgrade was answered with 401 or 403
	lossDial                    // no answer, or one that is no upgrade
	lossMedia                   // signaling works, media does not
	lossFinal                   // err says why nothing more is to be tried
	lossRejoin                  // the API gave no placement, yet
)

// closedLoss is the loss of a socket whose read failed with err.
func closedLoss(err error) *loss {
	var frame websocket.CloseError
	if !errors.As(err, &frame) {
		return &loss{code: closeLost, err: fmt.Errorf("signaling connection lost: %w", err)}
	}
	return &loss{
		code:       frame.Code,
		retryAfter: retryMS(frame.Reason),
		err:        &CloseError{Code: int(frame.Code), Reason: frame.Reason},
	}
}

// maxPlannedWait bounds what a close reason or a moved frame can make a client wait.
const maxPlannedWait = 10 * time.Minute

var retryPattern = regexp.MustCompile(`retry_ms"?[=: ]+(\d{1,9})`)

// retryMS reads how long to wait from the reason of a planned close, such as "retry_ms=1500".
func retryMS(reason string) time.Duration {
	m := retryPattern.FindStringSubmatch(reason)
	if m == nil {
		return 0
	}
	ms, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return plannedWait(int64(ms))
}

func plannedWait(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), maxPlannedWait.Milliseconds())) * time.Millisecond
}

// finalReason is the reason for which a code is final, or nil if it is not.
func finalReason(code websocket.StatusCode) error {
	switch code {
	case websocket.StatusNormalClosure, closeEnded:
		return ErrSessionEnded
	case closeReplaced:
		return ErrReplaced
	case closeBad, websocket.StatusProtocolError, websocket.StatusInvalidFramePayloadData, websocket.StatusMessageTooBig:
		return ErrRejected
	default:
		return nil
	}
}

// rejoinLoss is the outcome of a rejoin that failed.
func rejoinLoss(err error) *loss {
	refusal, ok := errors.AsType[*Error](err)
	if !ok || refusal.Retryable || refusal.Status >= 500 || refusal.Status == 429 {
		wait, _ := RetryAfter(err)
		return &loss{kind: lossRejoin, retryAfter: wait, err: err}
	}
	reason := ErrUnauthorized
	switch refusal.Code {
	case CodeSessionEnded, CodeNotFound:
		reason = ErrSessionEnded
	case CodeUnauthenticated, CodeForbidden:
	default:
		reason = ErrRejected
	}
	return &loss{kind: lossFinal, err: fmt.Errorf("%w: %w", reason, err)}
}
