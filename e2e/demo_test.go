package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/berthdev/berth/internal/testkit/chromium"
)

// demo is the demo page in a tab of a real browser.
type demo struct {
	tab   context.Context
	stack *stack
}

// openDemo opens the page, which starts a session at once.
func openDemo(t testing.TB, s *stack, query string) *demo {
	t.Helper()
	d := &demo{tab: run.browser.Open(t, 4*time.Minute), stack: s}
	chromium.Do(t, d.tab, chromedp.Navigate(s.APIURL+"/demo?autostart=1&"+query))
	return d
}

// journey is what the page says about its session.
type journey struct {
	State      string `json:"state"`
	SessionID  string `json:"sessionId"`
	Owner      string `json:"owner"`
	Generation int64  `json:"generation"`
	Frames     int64  `json:"framesDecoded"`
	Audio      int64  `json:"audioPacketsReceived"`
}

func (d *demo) read(t testing.TB) journey {
	t.Helper()
	return chromium.Eval[journey](t, d.tab, `({...berthDemo, history: undefined})`)
}

// flows waits until frames and audio packets rise at a generation beyond the one given, and returns the state after that.
// The page counts what getStats() reports as framesDecoded and packetsReceived, from 0 for each worker.
func (d *demo) flows(t testing.TB, beyond int64) journey {
	t.Helper()
	chromium.Until(t, d.tab, patience, fmt.Sprintf(
		`berthDemo.state === 'connected' && berthDemo.generation > %d && berthDemo.framesDecoded > 0 && berthDemo.audioPacketsReceived > 0`, beyond))
	first := d.read(t)
	chromium.Until(t, d.tab, patience, fmt.Sprintf(
		`berthDemo.generation === %d && berthDemo.framesDecoded > %d && berthDemo.audioPacketsReceived > %d`,
		first.Generation, first.Frames+5, first.Audio+someFrames))
	return d.read(t)
}

// end leaves the session by the page's button.
func (d *demo) end(t testing.TB) {
	t.Helper()
	chromium.Do(t, d.tab, chromedp.Click(chromedp.CSS(`#end`)))
	chromium.Until(t, d.tab, patience, `berthDemo.state === 'ended' && berthDemo.ended === 'left'`)
}

// backAfter is how long after a moment the first frame from the current owner was decoded, by the page's clock. Both clocks
// are this machine's; the page looks five times a second.
func (d *demo) backAfter(t testing.TB, moment time.Time) time.Duration {
	t.Helper()
	at := chromium.Eval[float64](t, d.tab, `berthDemo.history.findLast(({ type }) => type === 'media').at`)
	return time.UnixMilli(int64(at)).Sub(moment)
}

// checkOwner compares what the page says about its owner with the API and the table.
func (d *demo) checkOwner(t testing.TB, says journey) {
	t.Helper()
	answer := call(t, "GET", d.stack.APIURL+"/v1/sessions/"+says.SessionID, d.stack.APIKey, "")
	if got := parse[placement](t, answer); got.Owner.WorkerID != says.Owner || got.Generation != says.Generation || got.State != "active" {
		t.Errorf("the page says %+v, the API %s", says, answer.body)
	}
	if row := d.stack.owner(t, says.SessionID); row.worker != says.Owner || row.generation != says.Generation {
		t.Errorf("the page says %+v, the table %v", says, row)
	}
}

// TestBrowserSessionGoesOnAtAnotherWorkerAfterAKill is the main job: a real browser with camera and microphone, a worker that
// is killed from outside, and one that is killed by the page's button.
func TestBrowserSessionGoesOnAtAnotherWorkerAfterAKill(t *testing.T) {
	t.Parallel()
	s := newStack(t, "--workers", "3")
	page := openDemo(t, s, "source=camera&handler=echo")
	first := page.flows(t, 0)
	page.checkOwner(t, first)

	killed := time.Now()
	if err := syscall.Kill(s.workerPID(t, first.Owner), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := page.flows(t, first.Generation)
	t.Logf("frames are back %.2f s after kill -9 of %s", page.backAfter(t, killed).Seconds(), first.Owner)
	if second.Owner == first.Owner || second.SessionID != first.SessionID {
		t.Errorf("first %+v, then %+v", first, second)
	}
	page.checkOwner(t, second)

	killed = time.Now()
	chromium.Do(t, page.tab, chromedp.Click(chromedp.CSS(`#kill`)))
	third := page.flows(t, second.Generation)
	t.Logf("frames are back %.2f s after the button killed %s", page.backAfter(t, killed).Seconds(), second.Owner)
	if third.Owner == second.Owner || third.SessionID != first.SessionID {
		t.Errorf("second %+v, then %+v", second, third)
	}
	page.checkOwner(t, third)

	page.end(t)
	eventually(t, func() error {
		if row := s.owner(t, first.SessionID); row.state != "ended" {
			return fmt.Errorf("after bye the session is %v", row)
		}
		return nil
	})
}

// TestKilledWorkerOfDevComesBackAsItself kills a worker of `berth dev` and waits for its next life. Meanwhile the other one
// serves a browser that sends nothing, and one that sends its drawn picture.
func TestKilledWorkerOfDevComesBackAsItself(t *testing.T) {
	t.Parallel()
	s := newStack(t, "--workers", "2")
	before, pid := s.workerIdentity(t, "w1"), s.workerPID(t, "w1")
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.awaitState(t, "w1", "lost")
	t.Logf("lost %.2f s after the kill", time.Since(killed).Seconds())

	for _, query := range []string{"handler=play", "source=canvas&handler=echo"} {
		page := openDemo(t, s, query)
		page.checkOwner(t, page.flows(t, 0))
		page.end(t)
	}

	s.awaitState(t, "w1", "ready")
	if away := time.Since(killed); away < 10*time.Second {
		t.Errorf("came back after %v, want 10 s or more", away)
	}
	after := s.workerIdentity(t, "w1")
	if after.instance <= before.instance {
		t.Errorf("instance %d came after %d", after.instance, before.instance)
	}
	if after.instance = before.instance; after != before {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if alive(pid) {
		t.Errorf("pid %d still runs", pid)
	}
}

// workerIdentity is what of a worker outlives its process, and its instance, which does not.
type workerIdentity struct {
	signaling, control, region string
	capacity, instance         int
}

func (s *stack) workerIdentity(t testing.TB, id string) (w workerIdentity) {
	t.Helper()
	err := s.store.Pool().QueryRow(t.Context(), "select signaling_url, control_url, region, capacity, instance from berth.workers where id = $1", id).
		Scan(&w.signaling, &w.control, &w.region, &w.capacity, &w.instance)
	if err != nil {
		t.Fatalf("read worker %s: %v", id, err)
	}
	return w
}

func (s *stack) awaitState(t testing.TB, workerID, state string) {
	t.Helper()
	eventually(t, func() error {
		if got := query[string](t, s, "select state from berth.workers where id = $1", workerID); got != state {
			return fmt.Errorf("%s is %s, not %s", workerID, got, state)
		}
		return nil
	})
}
