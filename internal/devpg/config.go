package devpg

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// Config is what a private server may be told. The zero value is a throwaway
// server on a free port.
type Config struct {
	// Dir keeps the cluster between runs. It is created if missing and must
	// otherwise be empty or have been made by this package. Default: a temporary
	// directory that Stop removes.
	Dir string

	// Port on Listen; 0 picks a free one. A port that is taken is an error.
	Port int

	// Listen is the loopback address to listen on. Default: 127.0.0.1.
	Listen string

	// Durable makes commits survive a crash of the machine. It costs a flush of
	// the disk for each commit. Default: false, for tests.
	Durable bool

	// MaxConnections is the server's max_connections. Default: 200.
	MaxConnections int

	// Settings are further server settings by name, as in postgresql.conf. They
	// win over those this package chooses.
	Settings map[string]string

	// BinDir is the directory that holds initdb and postgres. Default:
	// $BERTH_PG_BIN, else the newest installation found.
	BinDir string

	// TempDir is where scratch directories are made and stale ones looked for.
	// Default: the first usable one of os.TempDir, /tmp and /var/tmp.
	TempDir string

	// StartTimeout bounds initdb and the wait for the server together, besides
	// the context. Default: 60s.
	StartTimeout time.Duration

	// Logger receives one line for each start, stop and clean-up. Default: none.
	Logger *slog.Logger
}

// withDefaults returns a copy with defaults filled in, or says which field is
// wrong.
func (c Config) withDefaults() (Config, error) {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1")
	c.MaxConnections = cmp.Or(c.MaxConnections, 200)
	c.StartTimeout = cmp.Or(c.StartTimeout, time.Minute)
	c.BinDir = cmp.Or(c.BinDir, os.Getenv("BERTH_PG_BIN"))
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))

	if addr, err := netip.ParseAddr(c.Listen); err != nil || !addr.IsLoopback() {
		return c, fmt.Errorf("field Listen: %q is not a loopback address: use 127.0.0.1", c.Listen)
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, fmt.Errorf("field Port: %d is outside 0..65535", c.Port)
	}
	if c.MaxConnections < 10 {
		return c, fmt.Errorf("field MaxConnections: %d is too few: use 10 or more", c.MaxConnections)
	}
	if c.Dir == "" {
		return c, nil
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("field Dir: %w", err)
	}
	c.Dir = dir
	return c, nil
}
