package config_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// update rewrites docs/configuration.md instead of comparing it; see go:generate in doc.go.
var update = flag.Bool("update", false, "rewrite the generated page")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
