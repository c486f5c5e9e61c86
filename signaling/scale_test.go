//go:build !chaos

package signaling

// How large tests of many clients are in every run.
const (
	silentClients = 100
	repeatedJoins = 20
)
