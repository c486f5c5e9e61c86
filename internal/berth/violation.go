package berth

// Violation is one invariant of docs/architecture.md that does not hold.
type Violation struct {
	Invariant int    // its number
	What      string // what is wrong
	Subject   string // the row: a worker, tenant or session key
}
