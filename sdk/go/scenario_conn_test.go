package berth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestScenario_K11_ClientsComeBackSpreadOverTheWindow(t *testing.T) {
	t.Parallel()
	client, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	const clients, buckets = 1000, 10
	var histogram [buckets]int
	for range clients {
		p := policy{giveUpAfter: DefaultGiveUpAfter, random: client.random}
		wait := p.next(closed(closeLost), 0).wait
		histogram[min(buckets-1, int(wait*buckets/linkBackoffBase))]++
	}
	if slices.Max(histogram[:]) > clients/5 || slices.Min(histogram[:]) < clients/20 {
		t.Errorf("first attempts per tenth of the window: %v", histogram)
	}
}

func TestScenario_K13_BackoffGrowsWhileLinksDropAtOnce(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	worker.welcomed = func(p *fakePeer) { _ = p.socket.CloseNow() }
	api := newFakeAPI(t, nil)
	api.answers[0] = answerJSON(200, worker.placement(5, api.URL))
	r := newRig(t, api.URL)
	r.client.random = func() float64 { return 1 }
	ctx, cancel := context.WithCancel(t.Context())
	r.client.sleep = func(_ context.Context, d time.Duration) error {
		if err := r.naps.sleep(t.Context(), d); err != nil || len(r.naps.all()) == 12 {
			cancel()
		}
		return nil
	}
	_, err := r.client.Connect(ctx, worker.placement(5, api.URL), r.config)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	want := []time.Duration{500 * time.Millisecond, 1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	waits := r.naps.all()
	if !slices.Equal(waits[:len(want)], want) || slices.Max(waits) != linkBackoffCap {
		t.Errorf("waits %v, want %v and so on", waits, want)
	}
}

func TestScenario_K13_TwoMinutesOfDroppedLinksAreFewAttempts(t *testing.T) {
	t.Parallel()
	p := worst()
	attempts := 0
	for elapsed := time.Duration(0); elapsed < 2*time.Minute; attempts++ {
		elapsed += p.next(closed(closeLost), 0).wait
	}
	if attempts > 10 {
		t.Errorf("%d attempts in two minutes", attempts)
	}
}

func TestScenario_K15_AtMostOneSocketAtATime(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	api := newFakeAPI(t, nil)
	api.answers[0] = answerJSON(200, worker.placement(5, api.URL))
	r := newRig(t, api.URL)
	conn := r.mustConnect(worker.placement(5, api.URL))
	for n := int64(2); n <= 6; n++ {
		peer := receive(t, worker.peers, "the peer")
		peer.send(map[string]any{"type": "moved", "retry_ms": 0}) // an announcement, and a cut besides
		worker.cut()
		eventually(t, "the next link", func() bool { return worker.dials.Load() >= n })
		r.flows()
	}
	eventually(t, "the connection", func() bool { return conn.State() == StateConnected })
	// The server may notice the end of the old socket only after it saw the new one.
	if most := worker.most.Load(); most > 2 {
		t.Errorf("%d sockets at once", most)
	}
}

func TestScenario_K18_ATokenProviderThatKeepsFailingIsFinal(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	worker.welcomed = func(p *fakePeer) { _ = p.socket.Close(closeToken, "token not accepted") }
	api := newFakeAPI(t, refuse(503, CodeUnavailable, "Retry-After", "1"), nil)
	api.answers[1] = answerJSON(200, worker.placement(5, api.URL))
	r := newRig(t, api.URL)
	_, err := r.connect(worker.placement(5, api.URL))
	if !errors.Is(err, ErrUnauthorized) || worker.dials.Load() != 2 || len(api.seen()) != 2 {
		t.Errorf("%v after %d dials and %d rejoins", err, worker.dials.Load(), len(api.seen()))
	}
}

func TestScenario_K20_AnEndedSessionStaysEnded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		code   Code
		want   error
	}{
		"ended":         {410, CodeSessionEnded, ErrSessionEnded},
		"forgotten":     {404, CodeNotFound, ErrSessionEnded},
		"token revoked": {401, CodeUnauthenticated, ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := newFakeWorker(t)
			api := newFakeAPI(t, refuse(test.status, test.code))
			r := newRig(t, api.URL)
			conn := r.mustConnect(worker.placement(5, api.URL))
			worker.closeAll(closeMoved, "moved")
			receive(t, conn.Done(), "the end")
			if err := conn.Err(); !errors.Is(err, test.want) || ErrorCode(err) != test.code || len(api.seen()) != 1 {
				t.Errorf("%v after %d rejoins", err, len(api.seen()))
			}
			if IsEnded(conn.Err()) != errors.Is(test.want, ErrSessionEnded) {
				t.Errorf("IsEnded(%v)", conn.Err())
			}
		})
	}
}

func TestScenario_K21_AnAPIThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	first, second := newFakeWorker(t), newFakeWorker(t)
	var asked atomic.Int64
	api := newFakeAPI(t, nil)
	api.answers[0] = func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= 20 {
			panic(http.ErrAbortHandler) // no answer
		}
		answerJSON(200, second.placement(6, api.URL))(w, r)
	}
	r := newRig(t, api.URL)
	conn := r.mustConnect(first.placement(5, api.URL))
	first.closeAll(closeMoved, "moved")
	r.flows()
	if p := conn.Placement(); p.Generation != 6 || asked.Load() != 21 {
		t.Errorf("placement %v after %d rejoins", p, asked.Load())
	}
}

func TestScenario_K21_TheLimitIsAFinalState(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	api := newFakeAPI(t, refuse(503, CodeUnavailable))
	r := newRig(t, api.URL)
	r.config.GiveUpAfter = 50 * time.Millisecond
	conn := r.mustConnect(worker.placement(5, api.URL))
	worker.closeAll(closeMoved, "moved")
	receive(t, conn.Done(), "the end")
	if err := conn.Err(); !errors.Is(err, ErrGaveUp) || ErrorCode(err) != CodeUnavailable {
		t.Error(err)
	}
}

func TestScenario_K11_RefusedUpgradesWaitAsLongAsTheyAreTold(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	worker.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		if worker.dials.Load() > 1 {
			return false
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	r := newRig(t, "http://unused.invalid")
	r.mustConnect(worker.placement(5, ""))
	if waits := r.naps.all(); len(waits) != 1 || waits[0] < 7*time.Second || waits[0] > 7500*time.Millisecond {
		t.Errorf("waits %v", waits)
	}
}

func TestScenario_K23_TheStateSaysReconnectingAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	worker := newFakeWorker(t)
	api := newFakeAPI(t, refuse(503, CodeUnavailable))
	r := newRig(t, api.URL)
	held := make(chan struct{})
	r.client.sleep = func(ctx context.Context, _ time.Duration) error {
		select {
		case held <- struct{}{}:
		case <-ctx.Done():
		}
		<-ctx.Done()
		return ctx.Err()
	}
	conn := r.mustConnect(worker.placement(5, api.URL))
	worker.closeAll(websocket.StatusServiceRestart, "retry_ms=60000")
	receive(t, held, "the wait")
	if conn.State() != StateReconnecting {
		t.Errorf("state %s during the wait", conn.State())
	}
}
