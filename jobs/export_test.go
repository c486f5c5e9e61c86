package jobs

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Retain is one run of the retention job.
func Retain(ctx context.Context, store RetentionStore) error { return retain(ctx, store) }

// Audit is one run of the audit job.
func Audit(ctx context.Context, store AuditStore, logger *slog.Logger, registry prometheus.Registerer) error {
	auditor, err := newAuditor(store, logger, registry)
	if err != nil {
		return err
	}
	return auditor.audit(ctx)
}

// ReadPressure reads the pressure until ctx ends.
func ReadPressure(ctx context.Context, store PressureStore, logger *slog.Logger, registry prometheus.Registerer) error {
	gauge, err := newGauge(store, logger, registry)
	if err != nil {
		return err
	}
	gauge.run(ctx)
	return nil
}
