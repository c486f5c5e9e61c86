package berth_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthdev/berth/internal/berth"
)

// reading is of a database clock that is ahead by skew, at the moment now, within an exchange that took before and after.
func reading(now, before, after, skew time.Duration) berth.Reading {
	zero := time.Unix(1_700_000_000, 0)
	return berth.Reading{At: zero.Add(now + skew), Before: zero.Add(now - before), After: zero.Add(now + after)}
}

func span(t *rapid.T, name string, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, name))
}

// However long an exchange takes, and however far apart the clocks are, what runs evenly has not stepped.
func TestClocksThatRunEvenlyDoNotStep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		skew := span(t, "skew", time.Hour)
		first := reading(0, span(t, "sent", 10*time.Second), span(t, "received", 10*time.Second), skew)
		passed := span(t, "passed", 40*time.Second)
		drift := span(t, "drift", 2*detection.ClockStep) - detection.ClockStep
		second := reading(passed, span(t, "sent again", 10*time.Second), span(t, "received again", 10*time.Second), skew+drift)
		if berth.Stepped(first, second, detection.ClockStep) {
			t.Fatalf("%+v, %+v", first, second)
		}
	})
}

// A step is seen if it is longer than the tolerance and what the exchanges took, in either direction.
func TestStepIsSeenWhateverTheExchangesTook(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sent, received := span(t, "sent", time.Second), span(t, "received", time.Second)
		first := reading(0, sent, received, 0)
		passed := received + sent + span(t, "passed", 40*time.Second)
		step := detection.ClockStep + 2*(sent+received) + 1 + span(t, "step", time.Hour)
		if rapid.Bool().Draw(t, "back") {
			step = -step
		}
		if !berth.Stepped(first, reading(passed, sent, received, step), detection.ClockStep) {
			t.Fatalf("a step of %v after %v was not seen", step, passed)
		}
	})
}

func TestOldReadingsAndNoneSayNothing(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]berth.Reading{
		"none before":   {{}, reading(time.Hour, 0, 0, 0)},
		"none":          {reading(0, 0, 0, 0), {}},
		"long ago":      {reading(0, 0, 0, 0), reading(time.Hour, 0, 0, 10*time.Second)},
		"a long answer": {reading(0, 0, 0, 0), reading(time.Second, 0, time.Hour, 10*time.Second)},
	} {
		if berth.Stepped(pair[0], pair[1], detection.ClockStep) {
			t.Error(name)
		}
	}
}

func TestAlarm(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outlook berth.Outlook
		want    berth.Alarm
	}{
		"all is well":             {berth.Outlook{SinceTick: time.Second}, berth.AlarmNone},
		"a gap is known":          {berth.Outlook{Missing: []berth.Instance{1}}, berth.AlarmNone},
		"a new gap":               {berth.Outlook{Missing: []berth.Instance{1}, NewGap: true, Ripe: true}, berth.AlarmGap},
		"a gap left behind":       {berth.Outlook{Ripe: true}, berth.AlarmRipe},
		"nobody looked":           {berth.Outlook{Blind: true, NewGap: true}, berth.AlarmBlind},
		"a tick that is late":     {berth.Outlook{SinceTick: 1500 * time.Millisecond}, berth.AlarmNone},
		"a tick that stays away":  {berth.Outlook{SinceTick: 1501 * time.Millisecond}, berth.AlarmOverdue},
		"no tick since the start": {berth.Outlook{}, berth.AlarmNone},
	} {
		if got := detection.Alarm(test.outlook); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
