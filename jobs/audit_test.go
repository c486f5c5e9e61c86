package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/jobs"
)

// stubAudit answers with canned violations.
type stubAudit struct {
	violations []berth.Violation
	err        error
}

func (s stubAudit) Violations(context.Context, int) ([]berth.Violation, error) {
	return s.violations, s.err
}

func TestAuditCountsAndNamesViolations(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	var lines strings.Builder
	logger := slog.New(slog.NewTextHandler(&lines, nil))
	store := stubAudit{violations: []berth.Violation{{Invariant: 3, What: "live_sessions differs", Subject: "acme"}}}
	if err := jobs.Audit(t.Context(), store, logger, registry); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(lines.String(), "invariant=3") || !strings.Contains(lines.String(), "subject=acme") {
		t.Errorf("the log does not name the violation: %s", lines.String())
	}
	want := "# HELP berth_violations_rows Rows of berth.violations at the last audit of this process, counted up to 20. " +
		"More than none is a bug.\n# TYPE berth_violations_rows gauge\nberth_violations_rows 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "berth_violations_rows"); err != nil {
		t.Error(err)
	}
}

func TestAuditThatCannotReadFails(t *testing.T) {
	t.Parallel()
	err := jobs.Audit(t.Context(), stubAudit{err: berth.ErrUnavailable}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if !errors.Is(err, berth.ErrUnavailable) {
		t.Errorf("got %v, want the store's error", err)
	}
}
