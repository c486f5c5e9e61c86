package backplane_test

import (
	"os"
	"testing"

	"github.com/berthdev/berth/internal/testkit"
	"github.com/berthdev/berth/migrations"
)

// databases is the server that these tests share.
var databases = testkit.NewPostgres(migrations.Up, testkit.PostgresConfig{})

func TestMain(m *testing.M) {
	os.Exit(testkit.Main(m, testkit.MainConfig{Postgres: databases}))
}
