package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// A game day is for a `berth dev` that runs. Whether it is fast enough is not for tests, which share their machine.
func TestGameDayTellsHowClientsCameBack(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	dir, err := newDir()
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(dir, nil, "bench", "storm", "--against", s.APIURL, "--n", "60", "--topics", "5", "--every", "500ms", "--before", "2s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.showAfterFailure(t) })
	t.Cleanup(p.interrupt) // if it is not over
	eventually(t, func() error {
		if !p.ended() {
			return fmt.Errorf("not over: %s", p.output())
		}
		return nil
	})
	for _, words := range []string{
		"60 clients were connected. A worker was killed", "Clients of other workers: 0 lost their connection", ", 0 were missed or came twice",
		"called 0 tokens wrong",
	} {
		if !strings.Contains(p.output(), words) {
			t.Errorf("nothing of %q in %s%s", words, p.output(), p.errors())
		}
	}
}
