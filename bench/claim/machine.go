package claim

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/berthdev/berth/bench/lab"
)

// Machine is where and with what a run was.
type Machine struct {
	lab.Host

	Filesystem string            `json:"filesystem,omitempty"` // of the database
	Settings   map[string]string `json:"postgres_settings"`
	Redis      string            `json:"redis,omitempty"`
	Load       Load              `json:"load"`
}

// Load is how much was asked for.
type Load struct {
	Connections int     `json:"connections"`
	Workers     int     `json:"workers"`
	Slots       int     `json:"slots_per_worker"`
	Rounds      int     `json:"rounds"`
	Warmup      float64 `json:"warmup_seconds"`
	Window      float64 `json:"window_seconds"`
}

// settingNames lists the settings of Postgres that matter to the numbers.
func settingNames() []string {
	return []string{
		"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers", "max_wal_size",
		"commit_delay", "commit_siblings",
	}
}

func (r *rig) machine(ctx context.Context) (Machine, error) {
	cfg := r.cfg
	host, err := r.postgres.Describe(ctx, cfg.Version)
	m := Machine{
		Host: host, Filesystem: filesystemOf(r.postgres.Dir()), Settings: map[string]string{},
		Load: Load{
			Connections: cfg.Connections, Workers: cfg.Workers, Slots: cfg.Slots, Rounds: cfg.Rounds,
			Warmup: cfg.Warmup.Seconds(), Window: cfg.Window.Seconds(),
		},
	}
	if err != nil {
		return m, err
	}
	if r.redis != nil {
		m.Redis = r.redis.Version
	}
	for _, name := range settingNames() {
		var value string
		if err := r.postgres.Admin.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return m, fmt.Errorf("read setting: %w", err)
		}
		m.Settings[name] = value
	}
	return m, nil
}

func (m Machine) write(w io.Writer) error {
	var settings []string
	for _, name := range settingNames() {
		settings = append(settings, name+"="+m.Settings[name])
	}
	_, err := fmt.Fprintf(w, `machine     %d cores, %s, %s %s
versions    berth %s, %s, Postgres %s, Redis %s
Postgres    %s, on %s
load        %d connections, %d workers with %d slots, %d rounds of %g s after %g s
`,
		m.Cores, m.CPU, m.OS, m.Kernel, m.Berth, m.Go, m.Postgres, m.Redis, strings.Join(settings, " "), m.Filesystem,
		m.Load.Connections, m.Load.Workers, m.Load.Slots, m.Load.Rounds, m.Load.Window, m.Load.Warmup)
	return err
}

// filesystemOf is the type of the file system that a directory is on, since on tmpfs a flush costs nothing.
func filesystemOf(dir string) string {
	return mountOf(lab.FileText("/proc/mounts"), dir)
}

// mountOf finds the longest mount point above dir, in the form of fstab(5).
func mountOf(mounts, dir string) string {
	longest, kind := -1, ""
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		point := path.Clean(fields[1])
		above := point == "/" || dir == point || strings.HasPrefix(dir, point+"/")
		if above && len(point) > longest {
			longest, kind = len(point), fields[2]
		}
	}
	return kind
}
