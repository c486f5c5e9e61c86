package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Host is where and with what a run was. Reports embed it.
type Host struct {
	At       time.Time `json:"at"`
	OS       string    `json:"os"`
	Kernel   string    `json:"kernel,omitempty"`
	CPU      string    `json:"cpu,omitempty"`
	Cores    int       `json:"cores"`
	Go       string    `json:"go"`
	Berth    string    `json:"berth,omitempty"`
	Postgres string    `json:"postgres"`
}

// Describe says what the server and this process, of Berth's version, run on.
func (s *Server) Describe(ctx context.Context, version string) (Host, error) {
	h := Host{
		At: time.Now().UTC().Truncate(time.Second), OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(),
		Kernel: FileText("/proc/sys/kernel/osrelease"), CPU: cpuModel(), Go: runtime.Version(), Berth: version,
	}
	if err := s.Admin.QueryRow(ctx, "show server_version").Scan(&h.Postgres); err != nil {
		return h, fmt.Errorf("read version: %w", err)
	}
	return h, nil
}

// FileText is the text of a file without white space around it; empty if there is none.
func FileText(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

func cpuModel() string {
	for line := range strings.Lines(FileText("/proc/cpuinfo")) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
