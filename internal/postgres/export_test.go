package postgres

// Queries are the statements by name.
func Queries() (map[string]string, error) { return loadQueries() }

// Fault is what calls make of the driver's errors.
func Fault(err error) error { return fault(err) }

// Flush writes the counts now.
var Flush = (*RefusalCounter).flush

// MaxRefusalCounts bounds the counts of one period.
const MaxRefusalCounts = maxRefusalCounts
