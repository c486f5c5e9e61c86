package media

import (
	"log/slog"

	"github.com/pion/logging"
)

// pionLoggers passes Pion's warnings and errors on at debug level, since most describe the ordinary end of
// a connection, and without their arguments, since those can hold what a client sent. The rest is dropped.
type pionLoggers struct{ log *slog.Logger }

// NewLogger implements logging.LoggerFactory.
func (f pionLoggers) NewLogger(scope string) logging.LeveledLogger {
	return pionLogger{log: f.log, scope: scope}
}

type pionLogger struct {
	log   *slog.Logger
	scope string
}

func (pionLogger) Trace(string)          {}
func (pionLogger) Tracef(string, ...any) {}
func (pionLogger) Debug(string)          {}
func (pionLogger) Debugf(string, ...any) {}
func (pionLogger) Info(string)           {}
func (pionLogger) Infof(string, ...any)  {}

func (l pionLogger) Warn(string)                   { l.pass("warn", "") }
func (l pionLogger) Warnf(format string, _ ...any) { l.pass("warn", format) }
func (l pionLogger) Error(string)                  { l.pass("error", "") }
func (l pionLogger) Errorf(format string, _ ...any) {
	l.pass("error", format)
}

func (l pionLogger) pass(severity, format string) {
	l.log.Debug("media library", "scope", l.scope, "severity", severity, "format", format)
}
