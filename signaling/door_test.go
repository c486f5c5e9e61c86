package signaling

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/address"
)

// W26: what a client writes into a header neither frees it from its limit nor uses up another's.
func TestScenario_W26_LimitCountsForTheAddressThatTheClientHas(t *testing.T) {
	t.Parallel()
	const burst, calls = 20, 200
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	anywhere := func() string { return fmt.Sprintf("203.0.113.%d", rand.IntN(256)) }
	for _, tc := range []struct {
		name    string
		trusted []netip.Prefix
		header  func() string
		victim  string // the header of somebody else; empty: there is nobody else behind this address
	}{
		{"random header", nil, anywhere, ""},
		{"random header by way of a proxy", loopback, func() string { return anywhere() + ", 198.51.100.7" }, "198.51.100.8"},
		{"pinned to a victim", loopback, func() string { return "198.51.100.8, 198.51.100.7" }, "198.51.100.8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newServer(t, Config{UpgradeRatePerAddress: burst / 2, TrustedProxies: tc.trusted})
			began, passed := time.Now(), 0
			good := "token." + token(held(1), "s-1", "a")
			for range calls {
				ws, answer, err := r.tryDial("s-1", http.Header{"X-Forwarded-For": {tc.header()}}, Protocol, good)
				if err == nil {
					passed++
					_ = ws.CloseNow()
					continue
				}
				if answer.status != http.StatusTooManyRequests {
					t.Fatalf("refused with %d", answer.status)
				}
				checkRetryAfter(t, answer)
			}
			if most := burst + burst/2*time.Since(began).Seconds() + 1; passed < burst || float64(passed) > most {
				t.Errorf("%d of %d passed in %v, want at least %d and at most %.0f", passed, calls, time.Since(began), burst, most)
			}
			if tc.victim == "" {
				return
			}
			if _, answer, err := r.tryDial("s-1", http.Header{"X-Forwarded-For": {tc.victim}}, Protocol, good); err != nil {
				t.Errorf("another client was refused with %d", answer.status)
			}
		})
	}
}

// One address that asks too often must not use up what the process has for all.
func TestAddressOverItsLimitTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	d := newDoor(Config{UpgradeRate: 0.001, UpgradeBurst: 10, UpgradeRatePerAddress: 0.001}.withDefaults(), m)
	call := func(remote string) bool {
		return d.paced(httptest.NewRecorder(), &http.Request{RemoteAddr: remote})
	}
	for range 1000 {
		call("198.51.100.7:1")
	}
	if !call("198.51.100.8:1") {
		t.Fatal("a second address was refused")
	}
}

func TestPropertyBucketNeverPassesMoreThanItsPace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := pace{rate: float64(rapid.IntRange(1, 100).Draw(rt, "rate")), burst: float64(rapid.IntRange(1, 50).Draw(rt, "burst"))}
		d := &door{addresses: address.NewTable[bucket](1), perAddress: p}
		start := time.Now()
		now, passed := start, 0
		for range rapid.IntRange(1, 300).Draw(rt, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(-5, 200).Draw(rt, "ms")) * time.Millisecond) // clocks also go back
			if d.allows(netip.Addr{}, now) {
				passed++
			}
			if most := p.burst + p.rate*(now.Sub(start).Seconds()+1.5); float64(passed) > most {
				rt.Fatalf("%d passed after %v, at most %.1f should", passed, now.Sub(start), most)
			}
		}
	})
}

func TestConnectionsOverTheMostAreRefusedUntilOneLeaves(t *testing.T) {
	t.Parallel()
	r := newServer(t, Config{MaxConnections: 2})
	a, _ := r.join(1, "a")
	r.join(1, "b")
	_, answer, err := r.tryDial("s-1", nil, Protocol, "token."+token(held(1), "s-1", "c"))
	if err == nil || answer.status != http.StatusServiceUnavailable {
		t.Fatalf("got %v, status %d", err, answer.status)
	}
	checkRetryAfter(t, answer)
	a.send(`{"type":"bye"}`)
	a.expectClose(CloseBye)
	eventually(t, "a place is free", func() bool {
		ws, _, err := r.tryDial("s-1", nil, Protocol, "token."+token(held(1), "s-1", "c"))
		if err == nil {
			_ = ws.CloseNow()
		}
		return err == nil
	})
	eventually(t, "every place is counted", func() bool { return r.hub.door.inside.Load() == 1 })
}

// discard is a ResponseWriter that costs nothing itself.
type discard http.Header

func (d discard) Header() http.Header { return http.Header(d) }

func (d discard) WriteHeader(int) {}

func (d discard) Write(p []byte) (int, error) { return len(p), nil }

func (d discard) WriteString(text string) (int, error) { return len(text), nil }

// A storm is refused thousands of times a second: an answer must not cost much more than the request.
func BenchmarkRefusal(b *testing.B) {
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	d := newDoor(Config{UpgradeRate: 0.001, UpgradeBurst: 1, UpgradeRatePerAddress: 1e6}.withDefaults(), m)
	w, r := discard{}, httptest.NewRequest(http.MethodGet, "/rtc?session=s-1", nil)
	d.paced(w, r)
	if allocations := testing.AllocsPerRun(100, func() { d.paced(w, r) }); allocations > 1 {
		b.Errorf("%v allocations for each refusal", allocations)
	}
	for b.Loop() {
		d.paced(w, r)
	}
}

func TestFramesOverTheRateAreAnsweredThenClosed(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour, FrameRate: 10, FrameBurst: 20}, func(r *rig) {
		w := r.connect(held(1), "s-1", "a", newFakeWire())
		say := func(n int) {
			for range n {
				w.in <- []byte(`{"type":"pong","id":"7"}`)
			}
			pass(time.Millisecond)
		}
		limited := func() (n int) {
			for _, f := range w.frames() {
				if f == `{"type":"error","code":"rate_limited","message":"too many frames: this one was ignored","reply_to":"7"}` {
					n++
				}
			}
			return n
		}
		say(20)
		for range 30 { // at the rate, for as long as one likes
			pass(100 * time.Millisecond)
			say(1)
		}
		if n := limited(); n != 0 {
			t.Fatalf("%d frames within the rate were refused", n)
		}
		pass(2 * time.Second)
		say(25)
		if n := limited(); n != 5 || w.code() != 0 {
			t.Fatalf("%d frames were refused, closed with %d", n, w.code())
		}
		say(15)
		if n := limited(); n != 20 || w.code() != 0 {
			t.Fatalf("%d frames were refused, closed with %d", n, w.code())
		}
		say(1)
		if w.code() != CloseTryLater {
			t.Fatalf("closed with %d", w.code())
		}
	})
}

func TestByeIsHeardHoweverManyFramesCameBefore(t *testing.T) {
	t.Parallel()
	inFakeTime(t, Config{PingInterval: time.Hour, FrameRate: 1, FrameBurst: 10}, func(r *rig) {
		w := r.connect(held(1), "s-1", "a", newFakeWire())
		for range 12 {
			w.in <- []byte(`{"type":"pong"}`)
		}
		w.in <- []byte(`{"type":"bye"}`)
		pass(time.Millisecond)
		if w.code() != websocket.StatusNormalClosure {
			t.Fatalf("closed with %d", w.code())
		}
	})
}
