package berth

import (
	"sync"
)

// State is where a connection stands; see the package comment.
type State string

// The states of a connection.
const (
	StateConnecting   State = "connecting"   // never connected yet
	StateConnected    State = "connected"    // signaling is open and media flows
	StateReconnecting State = "reconnecting" // lost, on the way back
	StateClosed       State = "closed"       // final
)

// StateChange is one change of state.
type StateChange struct {
	State     State
	Placement Placement // the current one
	Err       error     // why it is reconnecting or closed; nil after Conn.Close
}

// maxPendingStates bounds what a slow OnState has not seen yet; the oldest go first.
const maxPendingStates = 16

// notifier delivers state changes in order from a goroutine of its own, so that a callback can neither stop the
// connection nor deadlock with it.
type notifier struct {
	changes chan StateChange
	wg      sync.WaitGroup
}

func newNotifier(onState func(StateChange)) *notifier {
	n := &notifier{changes: make(chan StateChange, maxPendingStates)}
	n.wg.Go(func() {
		for change := range n.changes {
			if onState != nil {
				onState(change)
			}
		}
	})
	return n
}

// tell never blocks. It has one caller, so the place it makes is its own.
func (n *notifier) tell(change StateChange) {
	for {
		select {
		case n.changes <- change:
			return
		default:
		}
		select {
		case <-n.changes:
		default:
		}
	}
}

// stop waits until the last change was delivered.
func (n *notifier) stop() {
	close(n.changes)
	n.wg.Wait()
}
