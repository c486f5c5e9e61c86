//go:build chaos

package e2e

import "testing"

// TestAPIsPausedAtManyPointsPlaceNothingTwice is TestPausedAPIHoldsNobodyUpAndPlacesNothingTwice for longer.
func TestAPIsPausedAtManyPointsPlaceNothingTwice(t *testing.T) {
	t.Parallel()
	pauseAPIs(t, 60)
}
