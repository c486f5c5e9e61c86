package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// refusalsFor is how far back an explanation looks for refusals of the tenant.
const refusalsFor = 15 * time.Minute

// Explain says why a session of a tenant is where it is, or is nowhere. It only reads, and what it reads one after another
// may differ by what happened meanwhile. There need be no session of this id, but the tenant must exist.
func (s *Store) Explain(ctx context.Context, tenantID, id string) (berth.Explanation, error) {
	rows, err := collect[searchRow](ctx, s, "why_search", tenantID, id)
	if err != nil {
		return berth.Explanation{}, err
	}
	if len(rows) == 0 {
		return berth.Explanation{}, berth.Refuse(berth.CodeNotFound, "There is no tenant with this id.")
	}
	found := rows[0]
	explanation := berth.Explanation{
		At: found.At, TenantID: tenantID, SessionID: id, Queue: found.place(), Search: found.search(),
		Owners: []berth.Ownership{},
	}
	if found.Key != nil {
		if explanation.Session, err = s.explainedRow(ctx, berth.SessionKey(*found.Key)); err != nil {
			return berth.Explanation{}, err
		}
		if explanation.Owners, err = s.owners(ctx, *found.Key); err != nil {
			return berth.Explanation{}, err
		}
	}
	if explanation.Candidates, err = s.candidates(ctx, found, explanation.Session); err != nil {
		return berth.Explanation{}, err
	}
	explanation.Refusals, err = s.refusals(ctx, tenantID)
	return explanation, err
}

// searchRow is what an id is and asks for: of its newest session, else of a start that waits, else of its tenant.
type searchRow struct {
	Key           *int64
	Regions       []*string
	Slots         int
	Strategy      string
	Selector      map[string]string
	Waiter        *int64
	Tag           *int64
	Turn          *int
	Waiters       int
	Since         *time.Time
	Deadline      *time.Time
	OwnerPresent  *bool
	ReservedUntil *time.Time
	At            time.Time
}

func (r searchRow) search() berth.Search {
	search := berth.Search{Regions: []string{}, Slots: r.Slots, Strategy: berth.Strategy(r.Strategy), Selector: r.Selector}
	for _, region := range r.Regions {
		if region != nil {
			search.Regions = append(search.Regions, *region)
		}
	}
	return search
}

func (r searchRow) place() *berth.QueuePlace {
	if r.Turn == nil {
		return nil
	}
	return &berth.QueuePlace{
		Turn: *r.Turn, Waiters: r.Waiters, Since: deref(r.Since), Deadline: deref(r.Deadline),
		OwnerPresent: deref(r.OwnerPresent), ReservedUntil: deref(r.ReservedUntil),
	}
}

func (s *Store) explainedRow(ctx context.Context, key berth.SessionKey) (*berth.ExplainedRow, error) {
	row, err := s.SessionByKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return &berth.ExplainedRow{
		Key: row.Key, State: row.State, Region: row.Region, RequestedRegion: row.RequestedRegion, WorkerID: row.WorkerID,
		LastWorkerID: row.LastWorkerID, Generation: row.Generation, CreatedAt: row.CreatedAt, ConnectBy: row.ConnectBy,
		RejoinBy: row.RejoinBy, ExpiresAt: row.ExpiresAt, EndedAt: row.EndedAt, EndedReason: row.EndedReason,
	}, nil
}

type candidateRow struct {
	WorkerID      string
	Region        string
	State         string
	Capacity      int
	Used          int
	Free          int
	Rank          *float64
	Reason        *string
	SuspectReason *string
	SlowStart     bool
}

// candidates reads the workers of the regions that a session may use. session is nil for one that does not exist.
func (s *Store) candidates(ctx context.Context, found searchRow, session *berth.ExplainedRow) ([]berth.Candidate, error) {
	var selector *string
	if found.Selector != nil {
		text, err := json.Marshal(found.Selector)
		if err != nil {
			return nil, fmt.Errorf("encode selector: %w", err)
		}
		selector = new(string(text))
	}
	avoided := "" // a claim uses it when nothing else fits
	if session != nil {
		avoided = session.LastWorkerID
	}
	rows, err := collect[candidateRow](ctx, s, "why_candidates",
		found.Regions, found.Slots, found.Strategy, selector, found.Tag, found.Waiter, avoided)
	candidates := make([]berth.Candidate, 0, len(rows))
	for _, row := range rows {
		candidates = append(candidates, berth.Candidate{
			WorkerID: row.WorkerID, Region: row.Region, State: berth.WorkerState(row.State), Capacity: row.Capacity, Used: row.Used,
			Free: row.Free, Rank: row.Rank, Fits: row.Reason == nil, Reason: deref(row.Reason), SuspectReason: deref(row.SuspectReason),
			SlowStart: row.SlowStart,
			Avoided:   row.WorkerID == avoided,
			Owner:     session != nil && session.WorkerID == row.WorkerID,
		})
	}
	return candidates, err
}

type ownerRow struct {
	Generation  int64
	WorkerID    string
	Instance    int32
	Region      string
	Rank        float64
	FromAt      time.Time
	UntilAt     *time.Time
	Ended       *bool
	Cause       *string
	OpenedAt    *time.Time
	ConfirmedAt *time.Time
	Evidence    *string
}

func (s *Store) owners(ctx context.Context, key int64) ([]berth.Ownership, error) {
	rows, err := collect[ownerRow](ctx, s, "why_owners", key)
	owners := make([]berth.Ownership, 0, len(rows))
	for _, row := range rows {
		owner := berth.Ownership{
			Generation: berth.Generation(row.Generation), WorkerID: row.WorkerID, Instance: berth.Instance(row.Instance),
			Region: row.Region, Rank: row.Rank, From: row.FromAt, Until: deref(row.UntilAt), Cause: deref(row.Cause),
			Ended: deref(row.Ended),
		}
		if row.OpenedAt != nil {
			owner.Gap = &berth.Gap{OpenedAt: *row.OpenedAt, ConfirmedAt: deref(row.ConfirmedAt), Evidence: deref(row.Evidence)}
		}
		owners = append(owners, owner)
	}
	return owners, err
}

func (s *Store) refusals(ctx context.Context, tenantID string) ([]berth.RefusalsOfTime, error) {
	type refusalRow struct {
		Minute   time.Time
		Region   string
		Code     string
		Refusals int64
	}
	rows, err := collect[refusalRow](ctx, s, "why_refusals", tenantID, refusalsFor)
	refusals := make([]berth.RefusalsOfTime, 0, len(rows))
	for _, row := range rows {
		refusals = append(refusals, berth.RefusalsOfTime{
			Minute: row.Minute, Region: row.Region, Code: berth.Code(row.Code), Refusals: row.Refusals,
		})
	}
	return refusals, err
}
