package failover

import (
	"fmt"
	"slices"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// canned is a scene without processes: two calls over three workers, and one on a worker alone.
func canned() *scene {
	s := &scene{journal: &journal{}, tally: &tally{}}
	for i := range 3 {
		s.workers = append(s.workers, &member{id: fmt.Sprintf("w%d", i+1), instance: int64(i + 1)})
	}
	for _, on := range [][2]int{{0, 1}, {2, 0}, {1, 1}} {
		c := s.newCall()
		for i, p := range c.peers {
			p.worker, p.placement = s.workers[on[i]], &sdk.Placement{ID: c.id}
		}
		s.calls = append(s.calls, c)
	}
	return s
}

// line is one of an API process.
func line(message, worker string, instance int64) []byte {
	return fmt.Appendf(nil, `{"time":"2026-01-05T10:00:00Z","level":"INFO","msg":%q,"worker_id":%q,"instance":%d,"evidence":"e"}`,
		message, worker, instance)
}

func (p *peer) hears(kind string, at time.Time) {
	p.frames = append(p.frames, heard{frame{Type: kind}, at})
}

func TestSurvivorsAreThoseWhosePartnerLostItsWorker(t *testing.T) {
	t.Parallel()
	s := canned()
	f := s.aim(s.workers[0])
	if want := []*peer{s.calls[0].peers[1], s.calls[1].peers[0]}; !slices.Equal(f.survivors, want) {
		t.Errorf("%d survivors, want b of the first call and a of the second", len(f.survivors))
	}
	if both := s.aim(s.workers[0], s.workers[1]); len(both.survivors) != 1 {
		t.Errorf("%d survivors of two workers, want one", len(both.survivors))
	}
}

func TestSampleCountsFromTheKill(t *testing.T) {
	t.Parallel()
	s := canned()
	s.journal.hear(time.Now(), line(lineGap, "w1", 1)) // an earlier fault
	f := s.aim(s.workers[0])
	f.began = time.Now()
	after := func(ms int) time.Time { return f.began.Add(time.Duration(ms) * time.Millisecond) }
	s.journal.hear(after(10), line(lineGap, "w2", 2))
	s.journal.hear(after(120), line(lineGap, "w1", 1))
	s.journal.hear(after(130), []byte("no JSON"))
	s.journal.hear(after(540), line(lineLoss, "w1", 1))
	if s.judged(f) != true || f.told() {
		t.Error("the worker is judged, and nobody was told yet")
	}
	f.survivors[0].hears("peer-disconnected", after(600))
	f.survivors[0].hears("peer-disconnected", after(700)) // the second one says nothing about speed
	got := s.sample(f)
	if want := (Sample{Gap: []float64{120}, Confirm: []float64{420}, Notified: []float64{600}, Missed: 1}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	f.survivors[1].hears("peer-disconnected", after(900))
	if !f.told() {
		t.Error("all were told")
	}
}

func TestDropsAreCountedThatNoFaultWasAbout(t *testing.T) {
	t.Parallel()
	s := canned()
	f := s.aim(s.workers[0])
	f.began = time.Now()
	later := f.began.Add(time.Second)
	for _, p := range f.survivors {
		p.hears("peer-disconnected", later)
	}
	s.calls[0].peers[0].lostAt = later // on the killed worker
	s.journal.hear(later, line(lineLoss, "w1", 1))
	if s.countDrops(f); s.tally.sum.WronglyDropped != 0 {
		t.Errorf("counted what the fault was about: %q", s.tally.sum.Findings)
	}
	s.calls[2].peers[0].lostAt = later
	s.calls[2].peers[1].hears("peer-disconnected", later)
	s.journal.hear(later, line(lineLoss, "w3", 3))
	s.journal.hear(later, line(lineLoss, "w1", 7)) // the next instance
	if s.countDrops(f); s.tally.sum.WronglyDropped != 4 {
		t.Errorf("%d wrongly dropped, want 4: %q", s.tally.sum.WronglyDropped, s.tally.sum.Findings)
	}
}

func TestVictimsTakeTurns(t *testing.T) {
	t.Parallel()
	s := canned()
	var ids []string
	for range 2 {
		for _, m := range s.victims(2) {
			ids = append(ids, m.id)
		}
	}
	if want := []string{"w1", "w2", "w3", "w1"}; !slices.Equal(ids, want) {
		t.Errorf("%q, want %q", ids, want)
	}
}

func TestStartOfRiverClientIsInItsID(t *testing.T) {
	t.Parallel()
	at, err := startOf("my_host_2026_11_30T17_32_05_001234")
	if want := time.Date(2026, 11, 30, 17, 32, 5, 1234000, time.UTC); err != nil || !at.Equal(want) {
		t.Errorf("%s, %v, want %s", at, err, want)
	}
	for _, id := range []string{"", "client-7", "2026_13_30T17_32_05_001234x"} {
		if at, err := startOf(id); err == nil {
			t.Errorf("%q: %s", id, at)
		}
	}
}
