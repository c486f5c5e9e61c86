package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// seedVar repeats a run: every Seed and Rand of it takes this value.
const seedVar = "BERTH_TEST_SEED"

// Seed is a new random seed, or the one in BERTH_TEST_SEED. It is written to the
// test's output, with what to do to repeat the run.
func Seed(t testing.TB) int64 {
	t.Helper()
	seed := rand.Int64()
	if text := os.Getenv(seedVar); text != "" {
		given, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%s=%q is not a whole number", seedVar, text)
		}
		seed = given
	}
	t.Logf("seed %d: repeat with %s=%d", seed, seedVar, seed)
	return seed
}

// Rand is a source of random numbers from Seed. It is for one goroutine.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(uint64(Seed(t)), 0))
}
