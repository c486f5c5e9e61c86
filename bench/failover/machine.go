package failover

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// Machine is where and with what a run was.
type Machine struct {
	At       time.Time `json:"at"`
	OS       string    `json:"os"`
	Kernel   string    `json:"kernel,omitempty"`
	CPU      string    `json:"cpu,omitempty"`
	Cores    int       `json:"cores"`
	Go       string    `json:"go"`
	Berth    string    `json:"berth,omitempty"`
	Postgres string    `json:"postgres"`
	Workers  int       `json:"workers"`
	APIs     int       `json:"apis"`
	Calls    int       `json:"calls"`
	Crowd    int       `json:"crowd"`
}

func (r *rig) machine(ctx context.Context) (Machine, error) {
	m := Machine{
		At: time.Now().UTC().Truncate(time.Second), OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(),
		Kernel: fileText("/proc/sys/kernel/osrelease"), CPU: cpuModel(), Go: runtime.Version(), Berth: r.cfg.Version,
		Workers: r.cfg.Workers, APIs: r.cfg.APIs, Calls: r.cfg.Calls, Crowd: r.cfg.Crowd,
	}
	if err := r.admin.QueryRow(ctx, "show server_version").Scan(&m.Postgres); err != nil {
		return m, fmt.Errorf("read version: %w", err)
	}
	return m, nil
}

func (m Machine) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `machine     %d cores, %s, %s %s
versions    berth %s, %s, Postgres %s
fleet       %d workers, %d API processes, %d calls; a crowd is %d calls
`, m.Cores, m.CPU, m.OS, m.Kernel, m.Berth, m.Go, m.Postgres, m.Workers, m.APIs, m.Calls, m.Crowd)
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
