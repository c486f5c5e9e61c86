package devpg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// checkMajor refuses a cluster that another major version made.
func (p *place) checkMajor(binaries install) error {
	text, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if err != nil {
		return fmt.Errorf("version of the cluster: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("version of the cluster in %s: %w", p.path, err)
	}
	if major != binaries.major {
		return fmt.Errorf("data directory %s was made by PostgreSQL %d, but %s is version %d: "+
			"name matching binaries in BERTH_PG_BIN, or choose another directory", p.path, major, binaries.bin, binaries.major)
	}
	return nil
}

// initialise runs initdb beside data and moves the result there, so that data
// exists only when it is complete.
func (s *Server) initialise(ctx context.Context) error {
	unfinished := s.store.data() + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("remove unfinished cluster: %w", err)
	}
	if err := s.who.mkdir(unfinished); err != nil {
		return fmt.Errorf("make cluster directory: %w", err)
	}
	args := []string{
		"-D", unfinished, "--username=" + superuser, "--encoding=UTF8", "--locale=C",
		"--auth-local=trust", "--auth-host=scram-sha-256", "--no-instructions",
	}
	if !s.cfg.Durable {
		args = append(args, "--no-sync")
	}
	s.log.mark()
	if err := run(ctx, s.command(ctx, s.binaries.initdb(), args)); err != nil {
		return fmt.Errorf("initdb: %w%s", err, s.log.tail())
	}
	if err := os.Rename(unfinished, s.store.data()); err != nil {
		return fmt.Errorf("move new cluster: %w", err)
	}
	return nil
}
