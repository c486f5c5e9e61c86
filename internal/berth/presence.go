package berth

import "context"

// Presence is a worker's proof that its process lives: a database connection that holds the advisory lock of its
// instance and carries nothing else.
type Presence interface {
	// Done is closed when the connection is gone, for whatever reason. That alone says nothing about the lease.
	Done() <-chan struct{}

	// Close gives the lock back. It returns once the server has freed it, or with the error that prevented this.
	Close(ctx context.Context) error
}
