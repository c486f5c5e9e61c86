package postgres

import (
	"context"

	"github.com/berthdev/berth/internal/berth"
)

// UserWorkers says which workers hold connections of a tenant's user, by id, and how many. Those of a worker that is over do
// not count.
func (s *Store) UserWorkers(ctx context.Context, tenantID, userID string) ([]berth.UserConnections, error) {
	return collect[berth.UserConnections](ctx, s, "user_worker_list", tenantID, userID)
}
