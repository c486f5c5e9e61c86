package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Aside is a part of a measurement that has a process of its own, so that what it times is not the turn that it waits for
// behind the thousands of clients of this process. Its other end is [ServeAside]. It must be closed.
type Aside struct {
	child   *Child
	task    *os.File // open for as long as the child is to work
	said    *os.File
	answers *json.Decoder
	unwatch func() bool
}

// StartAside starts a command whose main part is [ServeAside], gives it its task, and returns once it is ready. The end of ctx
// ends it.
func StartAside(ctx context.Context, command *exec.Cmd, task any) (*Aside, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	said, says, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), ours.Close())
	}
	command.Stdin, command.Stdout = theirs, says
	child, err := StartChild(command)
	err = errors.Join(err, theirs.Close(), says.Close()) // the child has its own
	a := &Aside{child: child, task: ours, said: said, answers: json.NewDecoder(said), unwatch: func() bool { return true }}
	if child == nil {
		return nil, errors.Join(err, a.closePipes())
	}
	a.unwatch = context.AfterFunc(ctx, func() { _ = child.command.Process.Kill() }) // it may be gone already
	if err == nil {
		err = json.NewEncoder(ours).Encode(task)
	}
	if err == nil {
		err = a.answers.Decode(&struct{}{})
	}
	if err != nil {
		return nil, errors.Join(ctx.Err(), a.explain(err), a.Close())
	}
	return a, nil
}

// Finish tells the process that its work is over, and returns once result holds what came of it.
func (a *Aside) Finish(result any) error {
	if err := a.task.Close(); err != nil {
		return err
	}
	if err := a.answers.Decode(result); err != nil {
		return a.explain(err)
	}
	return nil
}

// explain adds what the process wrote: it ended too early, or said something else.
func (a *Aside) explain(err error) error {
	_ = a.child.command.Process.Kill() // it may be gone already
	<-a.child.done
	return fmt.Errorf("%s: %w: %s", a.child.command, errors.Join(err, a.child.err), a.child.tail())
}

// Close ends the process, if it is not over by itself. It is idempotent.
func (a *Aside) Close() error {
	a.unwatch()
	a.child.Kill()
	return a.closePipes()
}

func (a *Aside) closePipes() error {
	err := errors.Join(a.task.Close(), a.said.Close())
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// ServeAside does the work of an [Aside]: it reads a task, calls ready when the measurement may begin, and answers with what
// work returns, whose context ends when in does.
func ServeAside[T any](ctx context.Context, in io.Reader, out io.Writer, work func(ctx context.Context, task T, ready func() error) (any, error)) error {
	var task T
	input := json.NewDecoder(in)
	if err := input.Decode(&task); err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	answers := json.NewEncoder(out)
	working, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // the end of it, in whatever way, is what is waited for
	}()
	result, err := work(working, task, func() error { return answers.Encode(struct{}{}) })
	if err != nil {
		return err // the process ends, and with it who waits for the end of in
	}
	<-over
	return answers.Encode(result)
}
