package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/berthdev/berth/internal/auth"
	"github.com/berthdev/berth/internal/berth"
)

const (
	// readAgain is how long a stream waits after a read that failed.
	readAgain = time.Second
	// recheckTimeout bounds the look whether the key still works, which is remembered for most of them.
	recheckTimeout = 2 * time.Second
)

// endedEvent is the type of a session's last event, but for what its peers still cause.
const endedEvent = "ended"

// errKeyRevoked ends a stream whose key does not work any more.
var errKeyRevoked = errors.New("key revoked")

// stream sends events to one client. Its request's goroutine owns it.
type stream struct {
	follow
	sse

	api        *service
	key        string // the client's API key
	withTenant bool   // events name their tenant
	ended      bool   // the session's end was read
}

// stream answers with the events that begin says to follow, until the client leaves or does not read, its key is
// revoked, or the process stops.
func (s *service) stream(w http.ResponseWriter, r *http.Request, begin func(context.Context) (follow, error)) {
	caller := callerOf(r.Context())
	leave, err := s.watcher.enter(caller.TenantID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	key, _ := bearer(r) // it was checked on the way here
	st := &stream{sse: s.newSSE(w), api: s, key: key, withTenant: isOperator(caller)}
	defer s.held.add(func() {
		cancel()
		st.setWriteDeadline(0)
	})()
	page, err := st.begin(ctx, begin)
	switch {
	case err != nil && ctx.Err() != nil && r.Context().Err() == nil:
		s.fail(w, r, stopping())
	case err != nil:
		s.fail(w, r, err)
	case st.ended && len(page) == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		st.answer(ctx, r, page)
	}
}

// begin finds out what to follow and reads until there is something to send or nothing to read, before anything is
// answered.
func (st *stream) begin(ctx context.Context, begin func(context.Context) (follow, error)) (page []berth.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, st.api.cfg.RequestTimeout)
	defer cancel()
	if st.follow, err = begin(ctx); err != nil {
		return nil, err
	}
	for more := true; more && len(page) == 0; {
		if page, more, err = st.next(ctx); err != nil {
			return nil, err
		}
	}
	return page, nil
}

// answer sends the head, the first page and what follows.
func (st *stream) answer(ctx context.Context, r *http.Request, page []berth.Event) {
	if !st.head(r) {
		return
	}
	defer st.end()
	err := st.open(ctx, page)
	if err == nil {
		err = st.run(ctx)
	}
	st.api.log.DebugContext(ctx, "stream ended", slog.String("route", r.Pattern), slog.Any("err", err))
}

// open sends the first page, and tells the client when to return.
func (st *stream) open(ctx context.Context, page []berth.Event) error {
	var text bytes.Buffer
	writeRetry(&text)
	if len(page) > 0 {
		text.WriteByte('\n')
	} else {
		st.writeMark(&text)
	}
	if err := st.write(ctx, text.Bytes()); err != nil {
		return err
	}
	return st.send(ctx, page)
}

// writeMark ends a block that holds no event, of a stream that sent all it read. It moves the client's Last-Event-ID on,
// so that one that heard nothing can return to where it was, and after days too, when less is kept. A session's stream
// keeps the id of its last event.
func (st *stream) writeMark(text *bytes.Buffer) {
	if !st.ends {
		fmt.Fprintf(text, "id: %s\n", formatPosition(st.filter.After))
	}
	text.WriteByte('\n')
}

// run sends what comes. It returns nil when the session's end was sent and nothing followed it for one poll.
func (st *stream) run(ctx context.Context) error {
	for caughtUp := false; ; {
		end, news := st.api.watcher.state() // before the read, which shows all up to there
		page, more, failed := st.read(ctx)
		if err := st.send(ctx, page); err != nil {
			return err
		}
		pause := time.Duration(0)
		switch {
		case more:
			continue
		case failed != nil:
			pause = readAgain
		case st.ended && caughtUp && len(page) == 0:
			return nil
		default:
			caughtUp = true
			st.caughtUpWith(end)
			if st.ended {
				pause = st.api.cfg.StreamPoll
			}
		}
		if err := st.wait(ctx, news, pause); err != nil {
			return err
		}
	}
}

// caughtUpWith notes that all up to end was read, so that others' events need not be looked at again. A session's are
// found by its key.
func (st *stream) caughtUpWith(end berth.Position) {
	if !st.ends {
		st.filter.After = later(st.filter.After, end)
	}
}

// wait returns when there may be something to read, at the latest after pause unless that is zero. Silence is filled, or
// proxies would take the stream for dead.
func (st *stream) wait(ctx context.Context, news <-chan struct{}, pause time.Duration) error {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-news:
			return nil
		case <-over:
			return nil
		case <-st.silence.C:
			if err := st.keepAlive(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (st *stream) keepAlive(ctx context.Context) error {
	if err := st.api.recheck(ctx, st.key); err != nil {
		return err
	}
	text := bytes.NewBufferString(": nothing new\n")
	st.writeMark(text)
	return st.write(ctx, text.Bytes())
}

// read is next for a stream that was answered. It is the watcher that warns while the database is away, once for all.
func (st *stream) read(ctx context.Context) (page []berth.Event, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, st.api.cfg.RequestTimeout)
	defer cancel()
	if page, more, err = st.next(ctx); err != nil {
		st.api.log.DebugContext(ctx, "events not read", slog.Any("err", err))
	}
	return page, more, err
}

// next reads on and returns what the client does not have. More follows if the page was full.
func (st *stream) next(ctx context.Context) (page []berth.Event, more bool, err error) {
	page, err = st.api.watcher.read(ctx, st.filter)
	if err != nil || len(page) == 0 {
		return nil, false, err
	}
	more = len(page) >= st.filter.Limit
	st.filter.After = page[len(page)-1].Position
	fresh := page[:0]
	for _, event := range page {
		st.ended = st.ended || st.ends && event.Type == endedEvent
		if comparePositions(event.Position, st.sent) > 0 {
			fresh = append(fresh, event)
		}
	}
	return fresh, more, nil
}

// send writes a page of events, if the key still works.
func (st *stream) send(ctx context.Context, page []berth.Event) error {
	if len(page) == 0 {
		return nil
	}
	if err := st.api.recheck(ctx, st.key); err != nil {
		return err
	}
	var text bytes.Buffer
	for _, event := range page {
		if err := writeEvent(&text, event, st.withTenant); err != nil {
			return err
		}
	}
	return st.write(ctx, text.Bytes())
}

// recheck ends a stream whose key was revoked. While nobody can tell, the stream goes on.
func (s *service) recheck(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	if _, err := s.deps.Keys.Authenticate(ctx, key); errors.Is(err, auth.ErrUnauthenticated) {
		return errKeyRevoked
	}
	return nil
}
