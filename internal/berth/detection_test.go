package berth_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

var detection = berth.DefaultDetection()

func TestJudge(t *testing.T) {
	t.Parallel()
	const runs, late, tooLate = -time.Second, time.Second, 46 * time.Second
	for name, test := range map[string]struct {
		sighting berth.Sighting
		want     berth.Step
	}{
		"well":                                {berth.Sighting{Late: runs}, berth.StepNone},
		"well, expires this instant":          {berth.Sighting{}, berth.StepNone},
		"gone, first sign":                    {berth.Sighting{Missing: true, Late: runs}, berth.StepOpenGap},
		"gone and late, first sign":           {berth.Sighting{Missing: true, Late: tooLate}, berth.StepOpenGap},
		"gone, too early to ask":              {berth.Sighting{Missing: true, Late: runs, GapOpen: true, GapAge: 399 * time.Millisecond}, berth.StepNone},
		"gone, time to ask":                   {berth.Sighting{Missing: true, Late: runs, GapOpen: true, GapAge: 400 * time.Millisecond}, berth.StepConfirm},
		"gone and late, time to ask":          {berth.Sighting{Missing: true, Late: tooLate, GapOpen: true, GapAge: time.Minute}, berth.StepConfirm},
		"back":                                {berth.Sighting{Late: runs, GapOpen: true, GapAge: time.Second}, berth.StepClearGap},
		"back, cordoned":                      {berth.Sighting{Late: runs, GapOpen: true, Cordoned: true}, berth.StepClearGap},
		"paused, first sign":                  {berth.Sighting{Late: late}, berth.StepOpenGap},
		"paused":                              {berth.Sighting{Late: late, GapOpen: true}, berth.StepCordon},
		"paused, cordoned":                    {berth.Sighting{Late: late, GapOpen: true, Cordoned: true}, berth.StepNone},
		"paused, cordoned, no gap any more":   {berth.Sighting{Late: late, Cordoned: true}, berth.StepOpenGap},
		"paused beyond the limit":             {berth.Sighting{Late: tooLate, GapOpen: true, Cordoned: true}, berth.StepLose},
		"paused at the limit":                 {berth.Sighting{Late: 45 * time.Second, GapOpen: true}, berth.StepLose},
		"paused beyond the limit, first sign": {berth.Sighting{Late: tooLate}, berth.StepOpenGap},
		"well, but cordoned":                  {berth.Sighting{Late: runs, Cordoned: true}, berth.StepNone},
	} {
		if got := detection.Judge(test.sighting); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func anySighting(t *rapid.T) berth.Sighting {
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(-int64(2*time.Minute), int64(2*time.Minute)).Draw(t, "duration"))
	})
	s := berth.Sighting{
		Missing: rapid.Bool().Draw(t, "missing"), Cordoned: rapid.Bool().Draw(t, "cordoned"), Late: duration.Draw(t, "late"),
		GapOpen: rapid.Bool().Draw(t, "gap open"),
	}
	if s.GapOpen {
		s.GapAge = max(0, duration.Draw(t, "gap age"))
	}
	return s
}

// Never act on the first sign: nothing but opening a gap happens to a worker without one.
func TestFirstSignIsOnlyNoted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anySighting(t)
		if step := detection.Judge(s); !s.GapOpen && step != berth.StepNone && step != berth.StepOpenGap {
			t.Fatalf("%+v: %s", s, step)
		}
	})
}

// A worker that is not missing lives: it is asked nothing, and lost only when it is late beyond the pause limit.
func TestWorkerThatIsNotMissingIsLostOnlyBeyondThePauseLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anySighting(t)
		s.Missing = false
		step := detection.Judge(s)
		if step == berth.StepConfirm || step == berth.StepLose && s.Late < detection.PauseLimit {
			t.Fatalf("%+v: %s", s, step)
		}
	})
}

// A worker whose lease runs is never cordoned or lost by the look alone.
func TestRunningLeaseIsRespected(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anySighting(t)
		s.Late = min(s.Late, 0)
		if step := detection.Judge(s); step == berth.StepCordon || step == berth.StepLose {
			t.Fatalf("%+v: %s", s, step)
		}
	})
}

// Whatever is wrong with a worker, looking again in time leads to an end: no sighting of a missing worker is ignored
// for ever.
func TestMissingWorkerIsAlwaysDealtWith(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anySighting(t)
		s.GapOpen, s.GapAge = true, time.Hour
		s.Late = max(s.Late, detection.PauseLimit)
		if step := detection.Judge(s); step != berth.StepConfirm && step != berth.StepLose {
			t.Fatalf("%+v: %s", s, step)
		}
	})
}

func TestProbed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		late  time.Duration
		probe berth.ProbeResult
		want  berth.Verdict
	}{
		{-time.Hour, berth.ProbeDead, berth.VerdictDead},
		{time.Hour, berth.ProbeDead, berth.VerdictDead},
		{time.Hour, berth.ProbeAlive, berth.VerdictAlive},
		{4*time.Second - 1, berth.ProbeUnknown, berth.VerdictOpen},
		{4 * time.Second, berth.ProbeUnknown, berth.VerdictSilent},
		{-time.Second, berth.ProbeUnknown, berth.VerdictOpen},
		{time.Hour, "unheard of", berth.VerdictOpen},
	} {
		if got := detection.Probed(berth.Sighting{Late: test.late}, test.probe); got != test.want {
			t.Errorf("%v late, %s: got %v", test.late, test.probe, got)
		}
	}
}

// A gap that waits is looked at again exactly when it can be confirmed, and one that can be is not waited for.
func TestGapRipensAtTheConfirmDelay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anySighting(t)
		wait := detection.Ripens(s)
		if wait < 0 || wait > detection.ConfirmDelay || (wait > 0) != (s.Missing && (!s.GapOpen || s.GapAge < detection.ConfirmDelay)) {
			t.Fatalf("%+v: %v", s, wait)
		}
		if wait == 0 {
			return
		}
		s.GapOpen, s.GapAge = true, s.GapAge+wait
		if step := detection.Judge(s); step != berth.StepConfirm {
			t.Fatalf("%+v after %v: %s", s, wait, step)
		}
	})
}

func TestOverwhelming(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		unproven, workers int
		want              bool
	}{
		{0, 0, false},
		{1, 1, false},
		{2, 2, false},
		{2, 3, false},
		{3, 3, true},
		{3, 5, true},
		{3, 6, false},
		{4, 7, true},
		{500, 1000, false},
		{501, 1000, true},
	} {
		if got := detection.Overwhelming(test.unproven, test.workers); got != test.want {
			t.Errorf("%d of %d: got %v", test.unproven, test.workers, got)
		}
	}
}
