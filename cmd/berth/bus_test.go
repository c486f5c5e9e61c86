package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/config"
	"github.com/berthdev/berth/internal/testkit"
)

// Behind a pooler in transaction mode LISTEN succeeds and nothing is ever heard. A process says so when it starts.
func TestProcessesRefuseABackplaneBehindAPooler(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	pooler := testkit.StartPooler(t, db)
	common := shell{
		"BERTH_DATABASE_URL=" + db.URL, "BERTH_LOG_LEVEL=error", "BERTH_LISTEN=127.0.0.1:0", "BERTH_SIGNALING_LISTEN=127.0.0.1:0",
		"BERTH_CONTROL_LISTEN=127.0.0.1:0", "BERTH_MEDIA_LISTEN=127.0.0.1:0",
	}
	for _, process := range []string{"api", "worker"} {
		several := append(slices.Clip(common), "BERTH_BACKPLANE_URLS="+db.URL+","+pooler)
		several.refuses(t, 1, "BERTH_BACKPLANE_URLS", process)
		one := append(slices.Clip(common), "BERTH_DATABASE_DIRECT_URL="+pooler)
		one.refuses(t, 1, "BERTH_DATABASE_DIRECT_URL", process)
	}
}

func TestTopicsAreInTheDatabasesThatAreNamedForThem(t *testing.T) {
	t.Parallel()
	main, first, second := databases.Database(t), databases.Database(t), databases.Database(t)
	api, err := startAPI(t.Context(), settings[config.API](t, "BERTH_DATABASE_URL="+main.URL, "BERTH_LISTEN=127.0.0.1:0", "BERTH_DEV=true",
		"BERTH_BACKPLANE_URLS="+first.URL+","+second.URL), nil, testkit.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop the API: %v", err)
		}
	})
	const topics = 20
	for i := range topics {
		if _, err := api.bus.Publish(t.Context(), backplane.Outgoing{Topic: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	var counts [3]int
	for i, db := range []*testkit.DB{main, first, second} {
		if err := db.Pool.QueryRow(t.Context(), "select count(*) from berth.topics").Scan(&counts[i]); err != nil {
			t.Fatal(err)
		}
	}
	if counts[0] != 0 || counts[1] == 0 || counts[2] == 0 || counts[1]+counts[2] != topics {
		t.Errorf("topics in the main database and the others: %v", counts)
	}
}

// A database that is away takes along its topics, and no process.
func TestProcessStartsWhileADatabaseOfTheBackplaneIsAway(t *testing.T) {
	t.Parallel()
	main, first := databases.Database(t), databases.Database(t)
	api, err := startAPI(t.Context(), settings[config.API](t, "BERTH_DATABASE_URL="+main.URL, "BERTH_LISTEN=127.0.0.1:0", "BERTH_DEV=true",
		"BERTH_BACKPLANE_URLS="+first.URL+",postgres://nobody:hidden@127.0.0.1:1/none"), nil, testkit.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop the API: %v", err)
		}
	})
	var published, unavailable int
	for i := range 20 {
		_, err := api.bus.Publish(t.Context(), backplane.Outgoing{Topic: fmt.Sprint(i)})
		switch {
		case err == nil:
			published++
		case errors.Is(err, backplane.ErrUnavailable) && !strings.Contains(err.Error(), "hidden"):
			unavailable++
		default:
			t.Error(err)
		}
	}
	if published == 0 || unavailable == 0 {
		t.Errorf("%d published, %d unavailable", published, unavailable)
	}
}

func TestMigratePreparesEveryDatabaseOfTheBackplane(t *testing.T) {
	t.Parallel()
	first, second := databases.EmptyDatabase(t), databases.EmptyDatabase(t)
	url := databases.EmptyDatabase(t).URL
	sh := shell{
		"BERTH_DATABASE_URL=" + url, "BERTH_LOG_LEVEL=warn", "BERTH_BACKPLANE_URLS=" + strings.Join([]string{first.URL, url, second.URL}, ","),
	}
	applied := func(want string) {
		t.Helper()
		databases := map[string]int{}
		for _, row := range table(t, sh.prints(t, "migrate", "status")) {
			databases[row["DATABASE"]]++
			if row["APPLIED"] != want {
				t.Errorf("want %s: %v", want, row)
			}
		}
		if n := databases["main"]; len(databases) != 3 || n == 0 || databases["backplane 0"] != n || databases["backplane 2"] != n {
			t.Errorf("databases %v", databases)
		}
	}
	applied("false")
	sh.prints(t, "migrate", "up")
	applied("true")
	if _, err := second.Pool.Exec(t.Context(), "select berth.publish('{t}', '{x}')"); err != nil {
		t.Error(err)
	}
	sh.prints(t, "migrate", "down")
	away := shell{"BERTH_DATABASE_URL=" + url, "BERTH_LOG_LEVEL=error", "BERTH_BACKPLANE_URLS=postgres://u:hidden-word@127.0.0.1:1/none"}
	if r := away.berth(t, "migrate", "up"); r.code != 1 || !strings.Contains(r.stderr, "BERTH_BACKPLANE_URLS, database 0") ||
		strings.Contains(r.stderr, "hidden-word") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}
