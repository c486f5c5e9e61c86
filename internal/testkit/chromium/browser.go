package chromium

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Config is what a browser may be told.
type Config struct {
	// Camera is the path of a y4m file that plays in place of a camera, again and again. Default: Chromium's own
	// test picture.
	Camera string
	// Microphone is the path of a wav file, likewise. Default: Chromium's own beeps.
	Microphone string
}

// Browser is one Chromium. Make it with New.
type Browser struct {
	start func() error
	ctx   context.Context //nolint:containedctx // chromedp names a browser by a context
	stop  func()
}

// New prepares a browser; the first tab starts it.
func New(cfg Config) *Browser {
	b := &Browser{stop: func() {}}
	b.start = sync.OnceValue(func() error { return b.launch(cfg) })
	return b
}

func (b *Browser) launch(cfg Config) error {
	path, err := find()
	if err != nil {
		return err
	}
	ctx, kill := chromedp.NewExecAllocator(context.Background(), flags(cfg, path)...)
	ctx, closeAll := chromedp.NewContext(ctx)
	b.ctx, b.stop = ctx, func() { closeAll(); kill() }
	return chromedp.Do(ctx, chromedp.Navigate("about:blank"))
}

// flags make a browser that is quiet on the network, reaches workers on loopback, and has a camera and a microphone that
// nobody needs to be asked for.
func flags(cfg Config, path string) []chromedp.ExecAllocatorOption {
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.DisableGPU,
		chromedp.Flag("headless", "new"),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-timer-throttling", true),
		chromedp.Flag("disable-renderer-backgrounding", true),
		chromedp.Flag("allow-loopback-in-peer-connection", true),
		chromedp.Flag("autoplay-policy", "no-user-gesture-required"),
		chromedp.Flag("disable-features", "WebRtcHideLocalIpsWithMdns"),
		chromedp.Flag("use-fake-device-for-media-stream", true),
		chromedp.Flag("use-fake-ui-for-media-stream", true),
	}
	if cfg.Camera != "" {
		options = append(options, chromedp.Flag("use-file-for-fake-video-capture", cfg.Camera))
	}
	if cfg.Microphone != "" {
		options = append(options, chromedp.Flag("use-file-for-fake-audio-capture", cfg.Microphone))
	}
	return options
}

func find() (string, error) {
	for _, name := range []string{
		os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium",
	} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", errors.New("no Chromium found: run `make deps`, or set CHROMIUM to its path")
}

// Open opens a tab and returns the context that names it, for Do, Eval and chromedp. The tab is closed when the test ends;
// what is done in it fails once limit has passed (default: a minute).
func (b *Browser) Open(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	if err := b.start(); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	ctx, closeTab := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(limit, time.Minute))
	t.Cleanup(func() {
		cancel()
		closeTab()
	})
	return ctx
}

// Close ends the browser, if it was started, and waits for it. Call it after the tests.
func (b *Browser) Close() { b.stop() }
