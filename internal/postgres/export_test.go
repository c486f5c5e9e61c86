package postgres

import "context"

// Queries are the statements by name.
func Queries() (map[string]string, error) { return loadQueries() }

// Fault is what calls make of the driver's errors.
func Fault(err error) error { return fault(err) }

// MaxRefusalCounts bounds the counts of one period.
const MaxRefusalCounts = maxRefusalCounts

// Flush writes the counts now.
func Flush(ctx context.Context, c *RefusalCounter) { c.flush(ctx) }
