package auth_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthdev/berth/internal/auth"
)

// TestTURNCredentialsMatchAnIndependentImplementation compares with
// printf 1773316800:p-1 | openssl dgst -sha1 -hmac north -binary | base64.
func TestTURNCredentialsMatchAnIndependentImplementation(t *testing.T) {
	t.Parallel()
	username, credential := auth.TURNCredentials("north", "p-1", time.Unix(1773316800, 999))
	if username != "1773316800:p-1" || credential != "FD8WlxDJDuIYXwebVKe2pfbRXcU=" {
		t.Errorf("got %s %s", username, credential)
	}
}

func TestICEServersAreReadyForABrowser(t *testing.T) {
	t.Parallel()
	now := time.Unix(1773316200, 0)
	urls := []string{"stun:s:3478", "turn:t:3478?transport=udp", "turns:t:5349?transport=tcp", "stuns:s:5349"}
	username, credential := auth.TURNCredentials("new", "p-1", now.Add(10*time.Minute))
	got := auth.TURN{URLs: urls, Secrets: []string{"new", "old"}, TTL: 10 * time.Minute}.ICEServers("p-1", now)
	want := []auth.ICEServer{
		{URLs: []string{"stun:s:3478", "stuns:s:5349"}},
		{URLs: []string{"turn:t:3478?transport=udp", "turns:t:5349?transport=tcp"}, Username: username, Credential: credential},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).InfoContext(t.Context(), "test", "server", got[1])
	if strings.Contains(log.String(), credential) {
		t.Errorf("the credential is logged: %s", log.String())
	}
	for _, config := range []auth.TURN{{}, {URLs: urls[1:3]}} {
		document, err := json.Marshal(config.ICEServers("p-1", now))
		if err != nil || string(document) != "[]" {
			t.Errorf("without servers or secrets: %s, %v", document, err)
		}
	}
}
