package testkit

import (
	"log/slog"
	"testing"
)

func TestLoggerMayBeUsedAfterItsTest(t *testing.T) {
	t.Parallel()
	var logger *slog.Logger
	t.Run("ends", func(t *testing.T) { //nolint:paralleltest // must end before the logger is used
		logger = Logger(t)
		logger.Debug("during the test")
	})
	logger.Info("after the test") // would panic
}
