package claim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

// Machine is where and with what a run was.
type Machine struct {
	At         time.Time         `json:"at"`
	OS         string            `json:"os"`
	Kernel     string            `json:"kernel,omitempty"`
	CPU        string            `json:"cpu,omitempty"`
	Cores      int               `json:"cores"`
	Filesystem string            `json:"filesystem,omitempty"` // of the database
	Go         string            `json:"go"`
	Berth      string            `json:"berth,omitempty"`
	Postgres   string            `json:"postgres"`
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
	m := Machine{
		At: time.Now().UTC().Truncate(time.Second), OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(),
		Kernel: fileText("/proc/sys/kernel/osrelease"), CPU: cpuModel(), Filesystem: filesystemOf(r.postgres.Dir()),
		Go: runtime.Version(), Berth: cfg.Version, Settings: map[string]string{},
		Load: Load{
			Connections: cfg.Connections, Workers: cfg.Workers, Slots: cfg.Slots, Rounds: cfg.Rounds,
			Warmup: cfg.Warmup.Seconds(), Window: cfg.Window.Seconds(),
		},
	}
	if r.redis != nil {
		m.Redis = r.redis.version
	}
	if err := r.admin.QueryRow(ctx, "show server_version").Scan(&m.Postgres); err != nil {
		return m, fmt.Errorf("read version: %w", err)
	}
	for _, name := range settingNames() {
		var value string
		if err := r.admin.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
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

// fileText is a one-line file; empty if there is none.
func fileText(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

func cpuModel() string {
	for line := range strings.Lines(fileText("/proc/cpuinfo")) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// filesystemOf is the type of the file system that a directory is on, since on tmpfs a flush costs nothing.
func filesystemOf(dir string) string {
	return mountOf(fileText("/proc/mounts"), dir)
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
