package jobs

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
)

// auditLimit bounds the violations that one audit reads and logs.
const auditLimit = 20

// AuditStore reads the view that is always empty.
type AuditStore interface {
	Violations(ctx context.Context, limit int) ([]berth.Violation, error)
}

// auditor looks for invariants that do not hold.
type auditor struct {
	store      AuditStore
	logger     *slog.Logger
	violations prometheus.Gauge
}

func newAuditor(store AuditStore, logger *slog.Logger, registry prometheus.Registerer) (*auditor, error) {
	a := &auditor{store: store, logger: logger, violations: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "berth_violations_rows",
		Help: "Rows of berth.violations at the last audit of this process, counted up to 20. More than none is a bug.",
	})}
	if err := registry.Register(a.violations); err != nil {
		return nil, fmt.Errorf("register audit metrics: %w", err)
	}
	return a, nil
}

// audit reads the violations once, counts them and says each.
func (a *auditor) audit(ctx context.Context) error {
	violations, err := a.store.Violations(ctx, auditLimit)
	if err != nil {
		return fmt.Errorf("read violations: %w", err)
	}
	a.violations.Set(float64(len(violations)))
	for _, v := range violations {
		a.logger.ErrorContext(ctx, "invariant violated", "invariant", v.Invariant, "what", v.What, "subject", v.Subject)
	}
	return nil
}
