//go:build !race

package e2e

// raceDetector tells whether the tests were built with it; the processes under test are built likewise.
const raceDetector = false
