package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/openfile"
)

// usualConnections is what a process should have room for if nobody says how many it may have.
const usualConnections = 10_000

// openFiles raises the limit of open files, warns if it is too low for the connections that are wanted (zero: as many as
// fit), and returns how many there may be. Zero: this system does not say.
func openFiles(ctx context.Context, wanted int, logger *slog.Logger, registry prometheus.Registerer) (int, error) {
	target := wanted
	if target == 0 {
		target = usualConnections
	}
	limit, err := openfile.Raise()
	if err != nil {
		logger.WarnContext(ctx, "open files not raised", "err", err)
	}
	room := limit.Room()
	if room > 0 && room < target {
		logger.WarnContext(ctx, "open files limit is low: docs/capacity.md says how to raise it",
			"soft", limit.Soft, "hard", limit.Hard, "needed", openfile.Need(target), "connections", room, "target", target)
	}
	most := room
	if wanted > 0 && (room == 0 || wanted < room) {
		most = wanted
	}
	return most, openfile.Register(registry, limit, openfile.Need(target))
}
