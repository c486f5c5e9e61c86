package chromium

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Do takes steps in a tab, and fails the test when one cannot be taken.
func Do(t testing.TB, tab context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(tab, steps...); err != nil {
		t.Fatal(err)
	}
}

// BeforePage is a step that has a script run before those of every page that the tab opens.
func BeforePage(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

// Eval evaluates an expression in the page; a promise is awaited. Its value becomes a T as JSON does.
func Eval[T any](t testing.TB, tab context.Context, expression string) T {
	t.Helper()
	result, err := chromedp.Run(tab, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// Until waits until an expression is true in the page, and fails the test with the page's text when patience ends. An
// expression that throws is not true. chromedp.Poll would need eval, which our pages' policy forbids.
func Until(t testing.TB, tab context.Context, patience time.Duration, expression string) {
	t.Helper()
	wait := fmt.Sprintf(`new Promise((done) => {
		const end = performance.now() + %d;
		const look = () => {
			let met = false;
			try { met = Boolean(%s); } catch {}
			met || performance.now() > end ? done(met) : setTimeout(look, 40);
		};
		look();
	})`, patience.Milliseconds(), expression)
	if !Eval[bool](t, tab, wait) {
		t.Fatalf("never true within %v: %s\npage: %s", patience, expression, Text(t, tab))
	}
}

// Text is what the page shows, on one line.
func Text(t testing.TB, tab context.Context) string {
	t.Helper()
	return strings.Join(strings.Fields(Eval[string](t, tab, `document.body.innerText`)), " ")
}
