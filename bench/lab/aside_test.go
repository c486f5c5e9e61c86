package lab

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestAsideWorksUntilItIsToldThatItIsOver(t *testing.T) {
	t.Parallel()
	a, err := StartAside(t.Context(), exec.Command("sh", "-c", `read -r task; echo '{}'; cat >/dev/null; echo "{\"task\":$task}"`), 7)
	if err != nil {
		t.Fatal(err)
	}
	var result struct{ Task int }
	if err := a.Finish(&result); err != nil || result.Task != 7 {
		t.Errorf("%+v, %v", result, err)
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
}

func TestAsideThatEndsIsExplained(t *testing.T) {
	t.Parallel()
	if _, err := StartAside(t.Context(), exec.Command("sh", "-c", "echo no luck >&2; exit 3"), 7); err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("before it was ready: %v", err)
	}
	a, err := StartAside(t.Context(), exec.Command("sh", "-c", "read -r task; echo '{}'; cat >/dev/null; echo no luck >&2"), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(&struct{}{}); err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("without an answer: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := StartAside(t.Context(), exec.Command("/nowhere/berth"), 7); err == nil {
		t.Error("a binary that is not there was started")
	}
}

func TestAsideEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := StartAside(ctx, exec.Command("sleep", "60"), 7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestServedAsideAnswersAtTheEndOfItsInput(t *testing.T) {
	t.Parallel()
	in, task := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- ServeAside(t.Context(), in, out, func(ctx context.Context, task string, ready func() error) (any, error) {
			if err := ready(); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return task + " done", nil
		})
		_ = out.Close() // a pipe's cannot fail
	}()
	go func() {
		_, _ = io.WriteString(task, `"dishes"`) // whoever reads says so
		_ = task.Close()                        // as above
	}()
	said, err := io.ReadAll(answers)
	if err := errors.Join(err, <-ended); err != nil || string(said) != "{}\n\"dishes done\"\n" {
		t.Errorf("%q, %v", said, err)
	}
	if err := ServeAside(t.Context(), strings.NewReader("no task"), io.Discard, func(context.Context, int, func() error) (any, error) { return nil, nil }); err == nil {
		t.Error("no task was one")
	}
}

func TestWorkThatFailsIsNoAnswer(t *testing.T) {
	t.Parallel()
	failure := errors.New("no luck")
	err := ServeAside(t.Context(), strings.NewReader("1"), io.Discard, func(context.Context, int, func() error) (any, error) { return nil, failure })
	if !errors.Is(err, failure) {
		t.Error(err)
	}
}
