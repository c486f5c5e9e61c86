package testkit

import (
	"log/slog"
	"testing"
)

func TestLoggerMayBeUsedAfterItsTest(t *testing.T) { //nolint:tparallel // the subtest must end first
	t.Parallel()
	var logger *slog.Logger
	t.Run("ends", func(t *testing.T) {
		logger = Logger(t)
		logger.Debug("during the test")
	})
	logger.Info("after the test") // would panic
}
