// Command berth is every process of Berth: API, worker, migrations, tools, and all of them together for local work.
//
// This package wires the others, turns signals into an orderly stop, and errors into exit codes: 0 done, 1 failed, 2
// the command line or the configuration is wrong. The first SIGINT, SIGTERM or SIGHUP stops, the second ends at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// version is set by the linker.
var version = "dev"

// usageError marks a command line or configuration that cannot work.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	// After the first signal the default handlers are back, so that the second one ends the process.
	context.AfterFunc(ctx, stop)
	err := rootCommand().ExecuteContext(ctx)
	switch usage := (usageError{}); {
	case err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil:
	case errors.As(err, &usage):
		complain(err)
		os.Exit(2)
	default:
		complain(err)
		os.Exit(1)
	}
}

// stopSignals are those that stop in order. A closed terminal does too, unless the caller said to ignore it, as nohup does.
func stopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// complain prints an error once with the program's name, which errors of the client begin with too.
func complain(err error) {
	fmt.Fprintln(os.Stderr, "berth:", strings.TrimPrefix(err.Error(), "berth: "))
}
