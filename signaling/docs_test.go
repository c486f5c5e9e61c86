package signaling

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// The page is the contract for clients: it must name every frame, error code and close code.
func TestDocumentationNamesTheWholeProtocol(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/signaling.md")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{
		Protocol, typeWelcome, typeOffer, typeAnswer, typeCandidate, typePeerConnected, typePeerDisconnected, typeMoved,
		typeError, typePing, typePong, typeBye, typeSubscribe, typeSubscribed, typeUnsubscribe, typeUnsubscribed,
		typePublish, typePublished, typePresence, typeMessage, codeForbidden, codeTooManySubs, codeTooLarge, codeUnavailable,
		codeInvalidFrame, codeUnknownType, codeRateLimited, MediaBadSDP, MediaBadCandidate, MediaNoOffer, MediaGlare, MediaFailed,
	}
	for _, word := range words {
		if !strings.Contains(string(page), "`"+word+"`") {
			t.Errorf("docs/signaling.md does not name %s", word)
		}
	}
	for _, code := range []websocket.StatusCode{
		CloseBye, CloseProtocol, CloseNotUTF8, CloseTooBig, CloseRestart, CloseTryLater, CloseBad, CloseToken, CloseEnded,
		CloseReplaced, CloseMoved,
	} {
		if !strings.Contains(string(page), fmt.Sprintf("\n| %d", code)) {
			t.Errorf("docs/signaling.md has no row for close code %d", code)
		}
	}
}

// A reason that is too long would turn the close frame into 1011.
func TestCloseReasonsFitTheirFrame(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		reasonBye, reasonReplaced, reasonMoved, reasonStale, reasonInDoubt, reasonNotReady, reasonUnavailable, reasonSlow,
		reasonTooMany, reasonSilent, reasonBinary, reasonNotUTF8, reasonProtocol, reasonTooBig, reasonNotJSON, reasonTooManyErrors,
		reasonNoProtocol, reasonNoToken, reasonToken, reasonOtherSession, reasonMedia, retryReason(1 << 60),
		endedReason("rejoin_timeout"),
	} {
		if len(reason) > 123 || reason == "" {
			t.Errorf("reason of %d bytes: %q", len(reason), reason)
		}
	}
}
