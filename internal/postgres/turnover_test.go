package postgres

import (
	"math"
	"testing"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// estimate is a turnover that knows these slots per second and waiters, and does not read the database.
func estimate(rates map[string]float64, waiting map[string]int) *turnover {
	return &turnover{readAt: time.Now().Add(time.Hour), rates: rates, waiting: waiting, lines: map[string]imaginary{}}
}

// hints are the answers to n refusals at one moment.
func (t *turnover) hints(region string, n int, at time.Time) []time.Duration {
	hints := make([]time.Duration, n)
	for i := range hints {
		hints[i] = t.hint(region, at)
	}
	return hints
}

// near compares durations that come from divisions.
func near(t *testing.T, what string, got time.Duration, want float64) {
	t.Helper()
	if math.Abs(got.Seconds()-want) > 1e-6 {
		t.Errorf("%s: wait %v, want %v s", what, got, want)
	}
}

func TestRefusedTogetherComeBackAtThePaceOfTurnover(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for i, hint := range estimate(map[string]float64{"eu": 2}, nil).hints("eu", 100, now) {
		near(t, "two slots a second", hint, max(1, float64(i+1)/2))
	}
	for i, hint := range estimate(map[string]float64{"eu": 0.25}, nil).hints("eu", 10, now) {
		near(t, "a slot in four seconds", hint, float64(i+1)*4)
	}
}

func TestImaginaryLineMovesWithTime(t *testing.T) {
	t.Parallel()
	now, turnover := time.Now(), estimate(map[string]float64{"eu": 2, "us": 1}, nil)
	turnover.hints("eu", 20, now)
	near(t, "after three seconds, six have gone", turnover.hint("eu", now.Add(3*time.Second)), 15.0/2)
	near(t, "the line of another region is its own", turnover.hint("us", now.Add(3*time.Second)), 1)
	near(t, "after an hour nobody is ahead", turnover.hint("eu", now.Add(time.Hour)), 1)
}

func TestStartsThatWaitAreAhead(t *testing.T) {
	t.Parallel()
	turnover := estimate(map[string]float64{"eu": 2, "": 4}, map[string]int{"eu": 30, "": 100})
	now := time.Now()
	near(t, "behind thirty", turnover.hint("eu", now), 31.0/2)
	near(t, "behind all", turnover.hint("", now), 101.0/4)
	near(t, "behind thirty and the first", turnover.hint("eu", now), 32.0/2)
}

func TestHintsAreWithinBounds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for rate, least := range map[float64]time.Duration{1.0 / 60: longestHint, 1: longestHint, 100: 100 * time.Second, 1e9: time.Second} {
		turnover := estimate(map[string]float64{"eu": rate}, map[string]int{"eu": 10_000})
		for _, hint := range turnover.hints("eu", 1000, now) {
			if hint < least || hint > longestHint {
				t.Fatalf("%g slots a second: wait %v, want %v to %v", rate, hint, least, longestHint)
			}
		}
	}
}

func TestWithoutTurnoverTheHintIsShort(t *testing.T) {
	t.Parallel()
	for _, hint := range estimate(nil, map[string]int{"eu": 1000}).hints("eu", 1000, time.Now()) {
		if hint != idleHint {
			t.Fatalf("wait %v, want %v", hint, idleHint)
		}
	}
}

func TestLineDoesNotGrowWhileNothingComesFree(t *testing.T) {
	t.Parallel()
	turnover := estimate(map[string]float64{}, nil)
	now := time.Now()
	turnover.hints("eu", 5000, now)
	turnover.rates["eu"] = 2
	near(t, "they came back in vain all the time", turnover.hint("eu", now), 1)
}

func TestStartThatSpillsLooksAtTheTurnoverOfAllRegions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		start berth.Start
		want  float64
	}{
		"stays":          {berth.Start{Region: "eu"}, 100},
		"may spill":      {berth.Start{Region: "eu", Spill: true}, 10},
		"names none":     {berth.Start{Spill: true}, 10},
		"none and stays": {berth.Start{}, 10},
	} {
		refusal := estimate(map[string]float64{"eu": 0.01, "": 0.1}, nil).refusal(t.Context(), test.start)
		if refusal.Code != berth.CodeAtCapacity || !refusal.Retryable {
			t.Errorf("%s: got %+v", name, refusal)
		}
		near(t, name, refusal.RetryAfter, test.want)
	}
}
