package berth_test

import (
	"os"
	"testing"

	"github.com/berthdev/berth/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, testkit.MainConfig{})) }
