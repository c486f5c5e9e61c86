package testkit

import (
	"io"
	"log/slog"
	"sync"
	"testing"
)

// Logger writes every level to the test's output, which go test shows for
// failed tests and with -v. It may be used after the test has ended, when it
// writes nothing.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	output := &testOutput{writer: t.Output()}
	t.Cleanup(output.end)
	return slog.New(slog.NewTextHandler(output, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testOutput passes writes on until the test ends; a write to a finished test
// panics.
type testOutput struct {
	mu     sync.Mutex
	writer io.Writer // nil after the end
}

func (o *testOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writer == nil {
		return len(line), nil
	}
	return o.writer.Write(line)
}

func (o *testOutput) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writer = nil
}
