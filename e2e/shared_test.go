package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"syscall"
	"testing"
)

// sharedStack is one stack with three API processes, for tests that leave its own worker alone. The first test that asks
// starts it; TestMain stops it.
type sharedStack struct {
	once  sync.Once
	stack *stack
	apis  []string   // URLs; the first is that of the stack
	extra []*process // the API processes beside it
	err   error
}

// get returns the shared stack. Its invariants are checked when the test ends.
func (s *sharedStack) get(t testing.TB) *stack {
	t.Helper()
	s.once.Do(s.start)
	if s.err != nil {
		t.Fatalf("start the shared stack: %v", s.err)
	}
	t.Cleanup(func() {
		for _, p := range append([]*process{s.stack.process}, s.extra...) {
			p.showAfterFailure(t)
		}
	})
	s.stack.checkAtEnd(t)
	return s.stack
}

func (s *sharedStack) start() {
	if s.stack, s.err = startStack("--workers", "1"); s.err != nil {
		return
	}
	s.apis = []string{s.stack.APIURL}
	for range 2 {
		var p *process
		p, s.err = startProcess(s.stack.dir, []string{
			"BERTH_DATABASE_URL=" + s.stack.DatabaseURL, "BERTH_LISTEN=127.0.0.1:0",
		}, "api")
		if s.err != nil {
			return
		}
		s.extra = append(s.extra, p)
	}
	for _, p := range s.extra {
		var url string
		if url, s.err = p.awaitURL(); s.err != nil {
			return
		}
		s.apis = append(s.apis, url)
	}
}

var readyLine = regexp.MustCompile(`"msg":"api ready".*"url":"([^"]+)"`)

// awaitURL waits until an API process logs its URL.
func (p *process) awaitURL() (url string, err error) {
	err = poll(patience, func() error {
		found := readyLine.FindStringSubmatch(p.errors())
		switch {
		case found != nil:
			url = found[1]
			return nil
		case p.ended():
			return finalError{fmt.Errorf("%s ended: %w: %s", p.name, p.err, p.errors())}
		default:
			return fmt.Errorf("%s is not ready: %s", p.name, p.errors())
		}
	})
	return url, err
}

func (s *sharedStack) stop() error {
	var errs []error
	for _, p := range s.extra {
		errs = append(errs, p.stop(syscall.SIGTERM))
	}
	if s.stack != nil {
		errs = append(errs, s.stack.close())
	}
	return errors.Join(errs...)
}
