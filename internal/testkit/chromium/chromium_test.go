package chromium_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/berthdev/berth/internal/testkit/chromium"
	"github.com/berthdev/berth/internal/testkit/fakemedia"
)

var browser *chromium.Browser

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "berth-chromium-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	camera, microphone := filepath.Join(dir, "camera.y4m"), filepath.Join(dir, "microphone.wav")
	if err := fakemedia.WriteY4M(camera); err != nil {
		panic(err)
	}
	if err := fakemedia.WriteWAV(microphone); err != nil {
		panic(err)
	}
	browser = chromium.New(chromium.Config{Camera: camera, Microphone: microphone})
	code := m.Run()
	browser.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		panic(err)
	}
	return code
}

// page serves a page with a strict policy, so that nothing here needs eval.
func page(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'")
		_, _ = w.Write([]byte("<!doctype html><title>harbor</title><p>two   words"))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTabsShareNothing(t *testing.T) {
	t.Parallel()
	url := page(t)
	one, other := browser.Open(t, time.Minute), browser.Open(t, time.Minute)
	chromium.Do(t, one, chromium.BeforePage(`window.early = 'yes'`), chromedp.Navigate(url))
	chromium.Do(t, other, chromedp.Navigate(url))
	chromium.Eval[bool](t, one, `localStorage.setItem('k', 'v') ?? true`)
	if got := chromium.Eval[string](t, other, `String(localStorage.getItem('k')) + String(window.early)`); got != "nullundefined" {
		t.Errorf("the other tab sees %q", got)
	}
	chromium.Until(t, one, 10*time.Second, `window.early === 'yes' && document.title === 'harbor'`)
	if got := chromium.Text(t, one); got != "two words" {
		t.Errorf("text %q", got)
	}
}

// TestTheCameraPlaysTheFile looks at a pixel that only the file's picture has.
func TestTheCameraPlaysTheFile(t *testing.T) {
	t.Parallel()
	tab := browser.Open(t, time.Minute)
	chromium.Do(t, tab, chromedp.Navigate(page(t)))
	size := chromium.Eval[[]int](t, tab, `navigator.mediaDevices.getUserMedia({ video: true, audio: true }).then((stream) => {
		const { width, height } = stream.getVideoTracks()[0].getSettings();
		const audio = stream.getAudioTracks().length;
		stream.getTracks().forEach((track) => track.stop());
		return [width, height, audio];
	})`)
	if len(size) != 3 || size[0]*fakemedia.Height != size[1]*fakemedia.Width || size[2] != 1 {
		t.Errorf("width, height, audio tracks: %v", size)
	}
}
