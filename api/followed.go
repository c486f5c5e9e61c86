package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berthdev/berth/internal/berth"
)

// errSessionEnded ends a stream whose peer's session has ended.
var errSessionEnded = errors.New("session ended")

// followed are the sessions whose peers have streams open. A session is read once per interval, however many streams it
// has, and forgotten with the last of them.
type followed struct {
	sessions Sessions
	interval time.Duration

	mu   sync.Mutex // guards the rest; nothing is called under it
	open map[berth.SessionKey]*followedSession
}

type followedSession struct {
	streams int // guarded by followed.mu

	mu    sync.Mutex // held while the session is read; guards the rest
	seen  time.Time  // when it was read last, even in vain
	ended bool
}

func newFollowed(sessions Sessions, interval time.Duration) *followed {
	return &followed{sessions: sessions, interval: interval, open: make(map[berth.SessionKey]*followedSession)}
}

// enter counts one more stream of a session, which lived a moment ago. Leave takes it back.
func (f *followed) enter(key berth.SessionKey) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	session := f.open[key]
	if session == nil {
		session = &followedSession{seen: time.Now()}
		f.open[key] = session
	}
	session.streams++
	return func() { f.leave(key, session) }
}

func (f *followed) leave(key berth.SessionKey, session *followedSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if session.streams--; session.streams == 0 {
		delete(f.open, key)
	}
}

// recheck returns errSessionEnded for a session that has ended. While nobody can tell, its streams go on. Who calls it has
// entered.
func (f *followed) recheck(ctx context.Context, key berth.SessionKey) error {
	f.mu.Lock()
	session := f.open[key]
	f.mu.Unlock()
	session.mu.Lock()
	defer session.mu.Unlock()
	// A little less, so that a stream which asks once per interval is answered by a read of its own.
	if !session.ended && time.Since(session.seen) >= f.interval*3/4 {
		session.seen = time.Now()
		session.ended = f.hasEnded(ctx, key)
	}
	if session.ended {
		return errSessionEnded
	}
	return nil
}

// hasEnded asks the database.
func (f *followed) hasEnded(ctx context.Context, key berth.SessionKey) bool {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	session, err := f.sessions.SessionByKey(ctx, key)
	if err != nil {
		return errors.Is(err, &berth.Refusal{Code: berth.CodeNotFound})
	}
	return !session.State.Live()
}
