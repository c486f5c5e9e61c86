package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/berthdev/berth/internal/testkit/chromium"
)

// patientSource is a peer that never gives up by itself.
//
//go:embed testdata/patient.js
var patientSource string

// backWithin is how soon media must flow again after a worker wakes.
const backWithin = 2 * time.Second

// patient is a session of a stack with a real browser's camera and microphone.
type patient struct {
	stack *stack
	tab   context.Context
	id    string
	owner ownership
}

// patientView is what the page says.
type patientView struct {
	Frames int64    `json:"frames"`
	Audio  int64    `json:"audio"`
	Closed string   `json:"closed"`
	ICE    []string `json:"ice"`
	Grew   int64    `json:"grew"` // when frames were last seen to grow, Unix milliseconds
}

// openPatient starts a session and connects the browser to it.
func openPatient(t testing.TB, s *stack) *patient {
	t.Helper()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<!doctype html><title>patient</title><body></body>")) // the browser may have gone
	}))
	t.Cleanup(page.Close)
	answer := call(t, "POST", s.APIURL+"/v1/sessions", s.APIKey, `{"handler":"echo"}`)
	if answer.status != 201 {
		t.Fatalf("start: %d %s", answer.status, answer.body)
	}
	p := &patient{stack: s, tab: run.browser.Open(t, 4*time.Minute), id: parse[placement](t, answer).ID}
	chromium.Do(t, p.tab, chromedp.Navigate(page.URL))
	chromium.Eval[any](t, p.tab, "("+strings.TrimSpace(patientSource)+")("+answer.body+")")
	p.flows(t)
	p.owner = s.owner(t, p.id)
	return p
}

func (p *patient) read(t testing.TB) patientView {
	t.Helper()
	return chromium.Eval[patientView](t, p.tab, `window.patient`)
}

// flows waits until video and audio rise.
func (p *patient) flows(t testing.TB) {
	t.Helper()
	first := p.read(t)
	chromium.Until(t, p.tab, patience, fmt.Sprintf(`patient.closed !== '' || patient.frames > %d && patient.audio > %d`, first.Frames+5, first.Audio+someFrames))
	if now := p.read(t); now.Closed != "" {
		t.Fatalf("the socket was closed: %s", now.Closed)
	}
}

// survives pauses the owner for d and checks that nothing is lost: the row is as it was, nobody was declared lost, the
// socket is open, and frames are decoded again soon after waking.
func (p *patient) survives(t testing.TB, d time.Duration) {
	t.Helper()
	pid := p.stack.workerPID(t, p.owner.worker)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
	after(d)
	before := p.read(t)
	if row := p.stack.owner(t, p.id); row != p.owner {
		t.Errorf("after %v of pause the session is %v, was %v", d, row, p.owner)
	}
	woken := time.Now()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	chromium.Until(t, p.tab, patience, fmt.Sprintf(`patient.closed !== '' || patient.frames > %d`, before.Frames))
	first := p.read(t)
	back := time.UnixMilli(first.Grew).Sub(woken)
	t.Logf("a pause of %v: frames again %.2f s after waking; states %v", d, back.Seconds(), first.ICE)
	if first.Closed != "" || back > backWithin {
		t.Errorf("media after %v, socket closed: %q", back, first.Closed)
	}
	p.flows(t)
	if row := p.stack.owner(t, p.id); row != p.owner {
		t.Errorf("after a pause of %v the session is %v, was %v", d, row, p.owner)
	}
	if lost := query[int](t, p.stack, "select count(*) from berth.gaps where confirmed_at is not null"); lost != 0 {
		t.Errorf("%d false positives", lost)
	}
}

// TestPausedOwnerOfABrowsersSessionLosesNothing is the short form; the others are in chaos_browser_test.go.
func TestPausedOwnerOfABrowsersSessionLosesNothing(t *testing.T) {
	t.Parallel()
	openPatient(t, newStack(t, "--workers", "2")).survives(t, 8*time.Second)
}
