package berth

// SessionFilter selects sessions for a list, newest first.
type SessionFilter struct {
	TenantID string // empty: every tenant (operators only)
	State    SessionState
	WorkerID string
	Before   SessionKey // only keys below this one; zero: from the newest
	Limit    int
}
