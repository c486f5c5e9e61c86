package jobs

import "context"

// Retain is one run of the retention job.
func Retain(ctx context.Context, store RetentionStore) error { return retain(ctx, store) }
