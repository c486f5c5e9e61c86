package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/berthdev/berth/internal/testkit/chromium"
	"github.com/berthdev/berth/internal/testkit/fakemedia"
)

// suite is what the tests of one run share. TestMain makes and ends it; the parts start when the first test asks.
type suite struct {
	dir     string // of everything that the run writes
	browser *chromium.Browser
	binary  func() (string, error)
	shifted func() (string, error) // a binary whose clock can be set
	stack   *sharedStack
	http    *http.Client
}

var run *suite

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if run, err = newSuite(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(run.dir)) }()
	code = m.Run()
	run.browser.Close()
	err = run.stack.stop()
	run.http.CloseIdleConnections()
	if code == 0 && err == nil {
		err = goleak.Find()
	}
	return code, err
}

func newSuite() (*suite, error) {
	// Short, as a Unix socket will be in it, and open to the user that PostgreSQL runs as.
	dir, err := os.MkdirTemp("", "berth-e2e-")
	if err != nil {
		return nil, err
	}
	camera, microphone := filepath.Join(dir, "camera.y4m"), filepath.Join(dir, "microphone.wav")
	return &suite{
		dir:     dir,
		browser: chromium.New(chromium.Config{Camera: camera, Microphone: microphone}),
		binary:  newBinary(dir),
		shifted: newShiftedBinary(dir),
		stack:   &sharedStack{},
		http:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}, errors.Join(os.Chmod(dir, 0o755), fakemedia.WriteY4M(camera), fakemedia.WriteWAV(microphone))
}
