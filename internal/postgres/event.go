package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

type positionRow struct {
	XID string // xid8 has no binary form that fits an int64
	ID  int64
}

func (r positionRow) position() (berth.Position, error) {
	xid, err := strconv.ParseUint(r.XID, 10, 64)
	if err != nil {
		return berth.Position{}, fmt.Errorf("read transaction id: %w", err)
	}
	return berth.Position{XID: xid, ID: r.ID}, nil
}

type eventRow struct {
	positionRow

	TenantID  string
	SessionID string
	Session   int64
	Type      string
	Data      string
	At        time.Time
}

// Events reads up to filter.Limit lines of the history behind filter.After, oldest first. It stops below the oldest
// transaction that has written and still runs, in any database of the server, so that a line which commits late is not
// passed over: a transaction that is forgotten open holds followers back.
func (s *Store) Events(ctx context.Context, filter berth.EventFilter) ([]berth.Event, error) {
	name := "event_list"
	args := []any{strconv.FormatUint(filter.After.XID, 10), filter.After.ID, filter.TenantID, filter.Limit}
	if filter.Key != 0 {
		name, args = "event_of_session", append(args, int64(filter.Key))
	}
	rows, err := collect[eventRow](ctx, s, name, args...)
	if err != nil {
		return nil, err
	}
	events := make([]berth.Event, len(rows))
	for i, row := range rows {
		position, err := row.position()
		if err != nil {
			return nil, err
		}
		events[i] = berth.Event{
			Position: position, TenantID: row.TenantID, SessionID: row.SessionID, Key: berth.SessionKey(row.Session),
			Type: row.Type, Data: json.RawMessage(row.Data), At: row.At,
		}
	}
	return events, nil
}

// EventsEnd is the newest position that Events would return; the zero Position when there is none.
func (s *Store) EventsEnd(ctx context.Context) (berth.Position, error) {
	rows, err := collect[positionRow](ctx, s, "event_end")
	if err != nil || len(rows) == 0 {
		return berth.Position{}, err
	}
	return rows[0].position()
}

// ForgetEvents empties the partition of the history that will be written next, and returns how many days are kept.
func (s *Store) ForgetEvents(ctx context.Context) (int, error) {
	return value[int](ctx, s, "event_forget")
}

type capacityRow struct {
	Region          string
	WorkersReady    int
	WorkersDraining int
	Slots           int
	Used            int
	Free            int
	Waiting         int
	Spill           []string
}

// Capacity reads the slots of every region, and who waits for them. The row without a region counts those who wait for
// any.
func (s *Store) Capacity(ctx context.Context) ([]berth.RegionCapacity, error) {
	rows, err := collect[capacityRow](ctx, s, "capacity_read")
	regions := make([]berth.RegionCapacity, 0, len(rows))
	for _, row := range rows {
		regions = append(regions, berth.RegionCapacity(row))
	}
	return regions, err
}
