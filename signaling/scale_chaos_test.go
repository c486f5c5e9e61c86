//go:build chaos

package signaling

// As in scale_test.go, in the size in which these failures were seen.
const (
	silentClients = 1000
	repeatedJoins = 100
)
