package signaling

import (
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berthdev/berth/internal/berth"
)

func TestRefusalsByCloseCode(t *testing.T) {
	t.Parallel()
	good := "token." + token(held(1), "s-1", "a")
	cases := []struct {
		name      string
		directory func(d *fakeDirectory)
		admission Admission
		protocols []string
		code      websocket.StatusCode
	}{
		{"no token", nil, AdmitAll, []string{Protocol}, CloseToken},
		{"forged token", nil, AdmitAll, []string{Protocol, "token.x"}, CloseToken},
		{"token of another session", nil, AdmitAll, []string{Protocol, "token." + token(held(2), "s-2", "a")}, CloseToken},
		{"key not readable", nil, AdmitAll, []string{Protocol, "token.away.1.s-1.a.offer"}, CloseTryLater},
		{"protocol not on offer", nil, AdmitAll, []string{good}, CloseBad},
		{"stale generation", func(d *fakeDirectory) { d.current[1] = 999 }, AdmitAll, []string{Protocol, good}, CloseMoved},
		{"ended", func(d *fakeDirectory) { d.ended[held(1)] = "deleted" }, AdmitAll, []string{Protocol, good}, CloseEnded},
		{"database away", func(d *fakeDirectory) { d.err = berth.ErrUnavailable }, AdmitAll, []string{Protocol, good}, CloseTryLater},
		{"database broken", func(d *fakeDirectory) { d.err = errors.New("bug") }, AdmitAll, []string{Protocol, good}, CloseTryLater},
		{"database slow", func(d *fakeDirectory) { d.hang = true }, AdmitAll, []string{Protocol, good}, CloseTryLater},
		{"in doubt", nil, AdmitHeld, []string{Protocol, good}, CloseTryLater},
		{"not ready", nil, AdmitNone, []string{Protocol, good}, CloseTryLater},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newServer(t, Config{ConnectTimeout: 50 * time.Millisecond, DoubtHold: time.Millisecond})
			if tc.directory != nil {
				r.directory.set(tc.directory)
			}
			r.hub.Admit(tc.admission)
			r.dial("s-1", tc.protocols...).expectClose(tc.code)
			eventually(t, "nothing is held", func() bool { return len(r.hub.Held()) == 0 })
			if n := r.gauge("berth_signaling_connections"); n != 0 {
				t.Fatalf("%v connections counted", n)
			}
		})
	}
}

func TestTokenIsNotEchoedAsSubprotocol(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	good := "token." + token(held(1), "s-1", "a")
	ws, answer, err := r.tryDial("s-1", nil, good, Protocol)
	if err != nil {
		t.Fatal(err)
	}
	if ws.Subprotocol() != Protocol || answer.header.Get("Sec-WebSocket-Protocol") != Protocol {
		t.Fatal("negotiated something else than the protocol")
	}
}

func TestInDoubtOldSessionsStayOpenToTheirPeers(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	r.join(1, "a")
	r.hub.Admit(AdmitHeld)
	r.join(1, "b")
	r.joinAt(held(2), "a").expectClose(CloseTryLater)
}

func TestDrainingWorkerServesWhatIsPlacedHereAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	r.join(1, "a")
	r.hub.Admit(AdmitOwned)
	r.join(1, "b")
	r.join(2, "a") // placed before the drain, connects after it
	_, answer, err := r.tryDial("s-3", nil, Protocol, "token.forged")
	if err == nil || answer.status != http.StatusServiceUnavailable {
		t.Fatalf("got %v, status %d", err, answer.status)
	}
	checkRetryAfter(t, answer)
	r.dial("s-1", Protocol, "token.expired").expectClose(CloseToken)
}

func TestUpgradesOverTheRateAreRefusedWithARetryAfter(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{UpgradeRate: 0.001, UpgradeBurst: 2})
	r.join(1, "a")
	r.join(1, "b")
	for range 20 {
		_, answer, err := r.tryDial("s-1", nil, Protocol)
		if err == nil || answer.status != http.StatusServiceUnavailable {
			t.Fatalf("got %v, status %d", err, answer.status)
		}
		checkRetryAfter(t, answer)
	}
}

func checkRetryAfter(t *testing.T, answer answer) {
	t.Helper()
	seconds, err := strconv.Atoi(answer.header.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > retryAfterSeconds {
		t.Fatalf("Retry-After %q", answer.header.Get("Retry-After"))
	}
}

func TestOriginsAreExact(t *testing.T) {
	t.Parallel()
	cases := []struct {
		origin   string
		loopback bool
		allowed  bool
	}{
		{"", false, true},
		{"https://app.example.com", false, true},
		{"https://app.example.com:8443", false, false},
		{"http://app.example.com", false, false},
		{"https://evil.app.example.com", false, false},
		{"https://app.example.com.evil.net", false, false},
		{"null", true, false},
		{"http://localhost:3000", false, false},
		{"http://localhost:3000", true, true},
		{"http://127.0.0.1:3000", true, true},
		{"http://[::1]:3000", true, true},
		{"http://[::ffff:127.0.0.1]:3000", true, true},
		{"http://localhost.evil.net", true, false},
		{"http://10.0.0.1", true, false},
		{"file://localhost", true, false},
	}
	for _, tc := range cases {
		r, err := http.NewRequest(http.MethodGet, "http://app.internal/rtc", nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.origin != "" {
			r.Header.Set("Origin", tc.origin)
		}
		if got := originAllowed(r, []string{"https://app.example.com"}, tc.loopback); got != tc.allowed {
			t.Errorf("origin %q, loopback %v: allowed %v", tc.origin, tc.loopback, got)
		}
	}
}

func TestForeignOriginIsRefusedBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{AllowedOrigins: []string{"https://app.example.com"}})
	// The request's own host is no exception: a rebound name would pass.
	_, answer, err := r.tryDial("s-1", http.Header{"Origin": {r.server.URL}}, Protocol)
	if err == nil || answer.status != http.StatusForbidden {
		t.Fatalf("got %v, status %d", err, answer.status)
	}
	good := "token." + token(held(1), "s-1", "a")
	if _, _, err := r.tryDial("s-1", http.Header{"Origin": {"https://app.example.com"}}, Protocol, good); err != nil {
		t.Fatal(err)
	}
}

func TestPlainRequestIsToldToUpgrade(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{})
	response, err := http.Get(r.server.URL + "/rtc?session=s-1")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUpgradeRequired {
		t.Fatal(response.Status)
	}
}
