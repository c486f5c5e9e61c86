package web_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/berthdev/berth/internal/testkit/chromium"
)

// shared is one Chromium for all tests, stopped by TestMain.
var shared = chromium.New(chromium.Config{})

func openTab(t *testing.T) context.Context {
	t.Helper()
	return shared.Open(t, time.Minute)
}

func beforePage(script string) chromedp.Action[chromedp.Void] { return chromium.BeforePage(script) }

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	chromium.Do(t, ctx, steps...)
}

func eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	return chromium.Eval[T](t, ctx, expression)
}

func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	chromium.Until(t, ctx, 30*time.Second, expression)
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
