package web_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestBrowser runs everything that needs a browser in tabs of one Chromium, each with storage of its own.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := openBrowser(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"dashboard draws what the API answers":          testDashboardDraws,
		"dashboard follows changes and says so":         testDashboardFollows,
		"dashboard asks for a key":                      testDashboardKey,
		"dashboard shows refusals and how old it is":    testDashboardRefusal,
		"dashboard drains after asking":                 testDashboardDrain,
		"dashboard is useful when empty":                testDashboardEmpty,
		"dashboard copes with ten thousand slots":       testDashboardLarge,
		"demo gets its session back after a kill":       testDemoKill,
		"demo says why it was refused":                  testDemoRefused,
		"session does on each close what it should":     testCloseCodes,
		"session waits as long as the API says":         testRejoinWaits,
		"session gives up when the API's word is final": testRejoinFinal,
		"backoff has full jitter between its limits":    testBackoff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openTab(t, browser))
		})
	}
}

// openBrowser starts a browser that ends with the test.
func openBrowser(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	ctx, stop := chromedp.NewExecAllocator(ctx,
		chromedp.ExecPath(chromium(t)),
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
	t.Cleanup(func() {
		closeAll()
		stop()
		cancel()
	})
	do(t, ctx, chromedp.Navigate("about:blank"))
	return ctx
}

// chromium returns the path of the browser. Without one the test fails, so that nothing is left out unseen.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	t.Fatal("no Chromium found: run `make deps`, or set CHROMIUM to its path")
	return ""
}

// openTab opens a tab that shares nothing with other tabs.
func openTab(t *testing.T, browser context.Context) context.Context {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(closeTab)
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
