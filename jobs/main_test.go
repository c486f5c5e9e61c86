package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// databases is the server that these tests share.
var databases = testkit.NewPostgres(migrations.Up, testkit.PostgresConfig{AfterEach: noViolations})

func TestMain(m *testing.M) {
	os.Exit(testkit.Main(m, testkit.MainConfig{Postgres: databases}))
}

// noViolations fails when an invariant of the schema does not hold.
func noViolations(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, "select what || ': ' || subject from berth.violations")
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("violated: %q", found)
	}
	return err
}

// counter reads a counter of a registry; label is the value of its only label, or empty for the sum of all.
func counter(t *testing.T, registry *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := metric.GetLabel()
			if family.GetName() == name && (label == "" || len(labels) == 1 && labels[0].GetValue() == label) {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// gauge reads a gauge of a registry by its labels.
func gauge(t *testing.T, registry *prometheus.Registry, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			matched := 0
			for _, label := range metric.GetLabel() {
				if labels[label.GetName()] == label.GetValue() {
					matched++
				}
			}
			if family.GetName() == name && matched == len(labels) {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no gauge %s %v", name, labels)
	return 0
}

var errBroken = errors.New("broken on purpose")
