package telemetry

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// FormatText selects lines for people in [NewLogger]; any other format is JSON.
const FormatText = "text"

// NewLogger returns a logger that writes lines of at least level to w: JSON for machines, or short
// colored text for people (without colors unless w is a terminal).
func NewLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	if format == FormatText {
		return slog.New(requestHandler{tint.NewTextHandler(w, &tint.Options{
			Level: level, ReplaceAttr: redact, TimeFormat: time.TimeOnly, NoColor: !isTerminal(w),
		})})
	}
	return slog.New(requestHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: redact})})
}

// isTerminal reports whether w is a character device.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// requestHandler adds the request id of the context to each record.
type requestHandler struct {
	slog.Handler
}

// Handle adds request_id if the context has one.
func (h requestHandler) Handle(ctx context.Context, record slog.Record) error {
	if id := RequestID(ctx); id != "" {
		record = record.Clone()
		record.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs keeps the wrapper around the derived handler.
func (h requestHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the wrapper around the derived handler.
func (h requestHandler) WithGroup(name string) slog.Handler {
	return requestHandler{h.Handler.WithGroup(name)}
}
