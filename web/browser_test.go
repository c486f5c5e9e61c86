package web_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// browser is one Chromium for all tests, started by the first that asks and stopped by TestMain.
type browser struct {
	once sync.Once
	ctx  context.Context // chromedp names a browser by a context
	stop func()
	err  error
}

var shared = &browser{stop: func() {}}

// start starts the browser at the first call. Without a Chromium the tests fail, so that nothing is left out unseen.
func (b *browser) start() (context.Context, error) {
	b.once.Do(func() {
		path, err := chromium()
		if err != nil {
			b.err = err
			return
		}
		ctx, kill := chromedp.NewExecAllocator(context.Background(),
			chromedp.ExecPath(path),
			chromedp.NoSandbox,
			chromedp.Flag("headless", "new"),
			chromedp.Flag("disable-gpu", true),
			chromedp.Flag("disable-quic", true),
			chromedp.Flag("disable-background-networking", true),
			chromedp.Flag("disable-component-update", true),
			chromedp.Flag("allow-loopback-in-peer-connection", true),
			chromedp.Flag("autoplay-policy", "no-user-gesture-required"),
			chromedp.Flag("disable-features", "WebRtcHideLocalIpsWithMdns"),
		)
		ctx, closeAll := chromedp.NewContext(ctx)
		b.ctx, b.stop = ctx, func() { closeAll(); kill() }
		b.err = chromedp.Do(ctx, chromedp.Navigate("about:blank"))
	})
	return b.ctx, b.err
}

func chromium() (string, error) {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", errors.New("no Chromium found: run `make deps`, or set CHROMIUM to its path")
}

// openTab opens a tab that shares nothing with other tabs.
func openTab(t *testing.T) context.Context {
	t.Helper()
	parent, err := shared.start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, closeTab := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(func() {
		cancel()
		closeTab()
	})
	return ctx
}

// beforePage runs a script before those of every page that the tab opens.
func beforePage(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// eval evaluates an expression in the page; a promise is awaited.
func eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	result, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// until waits until an expression is true in the page. chromedp.Poll would need eval, which our policy forbids.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	const patience = 30 * time.Second
	wait := fmt.Sprintf(`new Promise((done) => {
		const end = performance.now() + %d;
		const look = () => {
			let met = false;
			try { met = Boolean(%s); } catch {}
			met || performance.now() > end ? done(met) : setTimeout(look, 40);
		};
		look();
	})`, patience.Milliseconds(), expression)
	if !eval[bool](t, ctx, wait) {
		t.Fatalf("never true: %s\npage: %s", expression, pageText(t, ctx))
	}
}

func pageText(t *testing.T, ctx context.Context) string {
	t.Helper()
	return strings.Join(strings.Fields(eval[string](t, ctx, `document.body.innerText`)), " ")
}

// noSidewaysScroll fails when the page is wider than the window.
func noSidewaysScroll(t *testing.T, ctx context.Context, width int64) {
	t.Helper()
	do(t, ctx, chromedp.EmulateViewport(width, 740, chromedp.EmulateMobile))
	until(t, ctx, fmt.Sprintf(`innerWidth <= %d`, width))
	if got := eval[int64](t, ctx, `document.documentElement.scrollWidth`); got > width {
		wide := eval[string](t, ctx, fmt.Sprintf(`[...document.querySelectorAll('body *')]
			.filter((e) => e.getBoundingClientRect().right > %d + 1 && !e.closest('.visually-hidden, thead'))
			.map((e) => e.tagName + '.' + e.className).slice(0, 5).join(', ')`, width))
		t.Errorf("page is %d wide in a window of %d: %s", got, width, wide)
	}
}
