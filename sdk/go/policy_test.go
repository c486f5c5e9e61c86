package berth

import (
	"errors"
	"testing"
	"time"

	"github.com/coder/websocket"
	"pgregory.net/rapid"
)

var errTest = errors.New("test")

// worst is a policy whose jitter takes the whole window.
func worst() *policy {
	return &policy{giveUpAfter: DefaultGiveUpAfter, random: func() float64 { return 1 }}
}

func closed(code websocket.StatusCode) *loss {
	return &loss{code: code, opened: true, err: errTest}
}

func TestPolicySequences(t *testing.T) {
	t.Parallel()
	reconnect, rejoin, rejoinLost, stop := plan{step: stepReconnect}, plan{step: stepRejoin}, plan{step: stepRejoin, lost: true}, plan{step: stepStop}
	stable := closed(closeLost)
	stable.uptime = stableAfter
	unopened := func(l *loss) *loss { l.opened = false; return l }
	tests := map[string]struct {
		losses []*loss
		want   []plan
	}{
		"lost: the same URL once, then rejoin": {
			[]*loss{closed(closeLost), {kind: lossDial, err: errTest}, {kind: lossRejoin, err: errTest}, closed(1001)},
			[]plan{reconnect, rejoinLost, rejoinLost, rejoinLost},
		},
		"stable links start anew": {
			[]*loss{closed(closeLost), stable, stable},
			[]plan{reconnect, reconnect, reconnect},
		},
		"one fresh token": {
			[]*loss{unopened(closed(closeToken)), unopened(closed(closeToken))},
			[]plan{rejoin, stop},
		},
		"a fresh token after a failed rejoin is still the first": {
			[]*loss{unopened(closed(closeToken)), {kind: lossRejoin, err: errTest}, unopened(closed(closeToken))},
			[]plan{rejoin, rejoin, stop},
		},
		"moved": {
			[]*loss{closed(closeMoved), closed(closeMoved)},
			[]plan{rejoin, rejoin},
		},
		"planned moves stay at the URL": {
			[]*loss{closed(1012), closed(1012), closed(1013)},
			[]plan{reconnect, reconnect, reconnect},
		},
		"a worker that is not ready twice is asked about": {
			[]*loss{unopened(closed(1013)), unopened(closed(1013))},
			[]plan{reconnect, rejoin},
		},
		"a refused upgrade does not make the owner lost": {
			[]*loss{{kind: lossRefused, err: errTest}, {kind: lossRefused, err: errTest}},
			[]plan{reconnect, rejoin},
		},
		"a forbidden upgrade is final": {[]*loss{{kind: lossForbids, err: errTest}}, []plan{stop}},
		"media that fails twice":       {[]*loss{{kind: lossMedia, err: errTest}, {kind: lossMedia, err: errTest}}, []plan{reconnect, rejoinLost}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := worst()
			for i, l := range test.losses {
				got := p.next(l, 0)
				if got.step != test.want[i].step || got.lost != test.want[i].lost {
					t.Errorf("loss %d: %+v, want %+v", i, got, test.want[i])
				}
			}
		})
	}
}

func TestWindowsFollowTheKindOfLoss(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		signalingOnly bool
		loss          *loss
		want          time.Duration
	}{
		"media lost":                  {false, closed(closeLost), 500 * time.Millisecond},
		"media planned":               {false, closed(1012), 500 * time.Millisecond},
		"media overloaded":            {false, closed(1013), 8 * time.Second},
		"signaling-only lost":         {true, closed(closeLost), 4 * time.Second},
		"signaling-only never open":   {true, &loss{code: closeLost, err: errTest}, 500 * time.Millisecond},
		"signaling-only planned":      {true, closed(1012), 8 * time.Second},
		"moved":                       {false, closed(closeMoved), 0},
		"planned with a time":         {false, &loss{code: 1012, opened: true, retryAfter: 3 * time.Second, err: errTest}, 3500 * time.Millisecond},
		"upgrade refused with a time": {false, &loss{kind: lossRefused, retryAfter: 2 * time.Second, err: errTest}, 2500 * time.Millisecond},
	}
	for name, test := range tests {
		p := worst()
		p.signalingOnly = test.signalingOnly
		if got := p.next(test.loss, 0); got.wait != test.want {
			t.Errorf("%s: %s, want %s", name, got.wait, test.want)
		}
	}
}

func TestPolicyHoldsForAnySequenceOfLosses(t *testing.T) {
	t.Parallel()
	codes := []websocket.StatusCode{closeLost, 1001, 1011, 1012, 1013, closeMoved, closeToken, 4999}
	rapid.Check(t, func(t *rapid.T) {
		p := worst()
		p.random = func() float64 { return rapid.Float64Range(0, 1).Draw(t, "random") }
		refreshes, sameByLoss := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "losses") {
			l := &loss{
				kind:       rapid.SampledFrom([]lossKind{lossClosed, lossRefused, lossDial, lossMedia, lossRejoin}).Draw(t, "kind"),
				code:       rapid.SampledFrom(codes).Draw(t, "code"),
				opened:     rapid.Bool().Draw(t, "opened"),
				uptime:     time.Duration(rapid.SampledFrom([]int{0, 1, 29, 30}).Draw(t, "uptime")) * time.Second,
				retryAfter: time.Duration(rapid.IntRange(0, 20).Draw(t, "retry_after")) * time.Second,
				err:        errTest,
			}
			if l.uptime >= stableAfter {
				refreshes, sameByLoss = 0, 0
			}
			before := p.attempt
			next := p.next(l, 0)
			token := l.kind == lossClosed && l.code == closeToken
			if next.step == stepStop {
				if !token || refreshes == 0 {
					t.Fatalf("gave up after %+v", l)
				}
				return
			}
			if token {
				refreshes++
			}
			if l.kind == lossMedia || l.kind == lossClosed && (l.code == closeLost || l.code == 1001) {
				if next.step == stepReconnect {
					sameByLoss++
				}
			}
			switch {
			case refreshes > 1:
				t.Fatal("a second fresh token without a stable link")
			case sameByLoss > 1:
				t.Fatal("the same URL twice without a stable link")
			case next.wait < l.retryAfter:
				t.Fatalf("%s is earlier than asked", next.wait)
			case next.wait > l.retryAfter+linkBackoffCap:
				t.Fatalf("%s is longer than the cap", next.wait)
			case p.attempt <= before && l.uptime < stableAfter:
				t.Fatal("the attempt counter did not grow")
			}
		}
	})
}

func TestGivingUpNamesTheLastLoss(t *testing.T) {
	t.Parallel()
	p := worst()
	if got := p.next(closed(closeLost), DefaultGiveUpAfter-time.Second); got.step == stepStop {
		t.Error("gave up early")
	}
	for name, got := range map[string]plan{
		"time is up":            p.next(closed(closeLost), DefaultGiveUpAfter),
		"told to wait too long": p.next(&loss{kind: lossRejoin, retryAfter: forever, err: errTest}, time.Second),
	} {
		if got.step != stepStop || !errors.Is(got.err, ErrGaveUp) || !errors.Is(got.err, errTest) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRetryMSIsReadFromCloseReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]time.Duration{
		"retry_ms=1500":            1500 * time.Millisecond,
		`{"retry_ms": 250}`:        250 * time.Millisecond,
		"restart, retry_ms: 20":    20 * time.Millisecond,
		"retry_ms=999999999":       maxPlannedWait,
		"retry_ms=-5":              0,
		"":                         0,
		"too slow":                 0,
		"retry_ms=99999999999999x": maxPlannedWait,
	} {
		if got := retryMS(reason); got != want {
			t.Errorf("%q: %s, want %s", reason, got, want)
		}
	}
}
