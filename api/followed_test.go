package api

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthdev/berth/internal/backplane"
	"github.com/berthdev/berth/internal/berth"
	"github.com/berthdev/berth/internal/testkit"
)

func TestTopicStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config, _ *store) { c.StreamKeepAlive = 50 * time.Millisecond })
	token, other := r.place(`{"id":"s-1"}`).Token, r.place(`{"id":"s-2"}`).Token
	quiet, busy, stays := r.listen(followA, token, ""), r.listen("/v1/topics/b/messages", token, ""), r.listen(followA, other, "")
	quiet.opens("", 0, 0, 0)
	stays.opens("", 0, 0, 0)
	busy.told()
	again := func() error {
		_, err := r.store.backplane.Memory.Publish(t.Context(), backplane.Outgoing{Topic: "t/t-1/b", Data: []byte(`1`)})
		return err
	}
	ended := make(chan error)
	go func() {
		err := again()
		for err == nil { // there is no silence to be filled
			if _, err = busy.next(); err == nil {
				err = again()
			}
		}
		ended <- err
	}()
	if a := r.call("DELETE", "/v1/sessions/s-1", r.tenant, ""); a.status >= 300 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n, err := quiet.ends(); n != 0 || err != io.EOF { //nolint:errorlint // exactly that one is the good order
		t.Errorf("%d events, then %v", n, err)
	}
	if err := <-ended; err != io.EOF { //nolint:errorlint // as above
		t.Errorf("the one that is never silent: %v", err)
	}
	r.publish("a", `1`)
	stays.messages(1, 1)
	testkit.EventuallyTrue(t, 5*time.Second, "only the other is remembered", func() bool {
		f := r.server.service.followed
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.open) == 1
	})
}

func TestSessionIsReadOncePerIntervalHoweverManyStreamsItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.sessions = append(s.sessions, &stored{Session: berth.Session{Key: 1, TenantID: "t-1", ID: "s-1", State: berth.SessionActive}})
		const interval, streams, intervals = 15 * time.Second, 20, 8
		f := newFollowed(s, interval)
		recheck := func() (err error) {
			for range streams {
				err = errors.Join(err, f.recheck(t.Context(), 1))
				<-time.After(interval / streams)
			}
			return err
		}
		for range streams {
			defer f.enter(1)()
		}
		for range intervals {
			if err := recheck(); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.calls.Load(); n < intervals-1 || n > intervals*4/3+1 {
			t.Errorf("%d reads in %d intervals", n, intervals)
		}
		s.setFail(fmt.Errorf("dial: %w", berth.ErrUnavailable))
		if err := recheck(); err != nil {
			t.Errorf("while nobody can tell: %v", err)
		}
		s.setFail(nil)
		if _, err := s.EndSession(t.Context(), "t-1", "s-1"); err != nil {
			t.Fatal(err)
		}
		if err := recheck(); !errors.Is(err, errSessionEnded) {
			t.Errorf("it ended: %v", err)
		}
	})
}
