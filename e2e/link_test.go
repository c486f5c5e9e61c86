package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/berthdev/berth/sdk/go"
)

// link is one worker's way to the database. It can be cut as a network cuts it: packets vanish, and the worker is told
// nothing, while the database gives its connections up after a while, here at once.
type link struct {
	url string

	listener net.Listener
	target   string
	carrying sync.WaitGroup

	mu    sync.Mutex // guards the rest
	isCut bool
	ends  map[net.Conn]bool // of the database's side
	all   []net.Conn
}

// newLink leads to the stack's database until the test ends.
func newLink(t testing.TB, databaseURL string) *link {
	t.Helper()
	address, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, target: address.Host, ends: map[net.Conn]bool{}}
	address.Host = listener.Addr().String()
	l.url = address.String()
	l.carrying.Go(l.accept)
	t.Cleanup(func() {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		l.mu.Lock()
		for _, conn := range l.all {
			_ = conn.Close() // it may be closed
		}
		l.mu.Unlock()
		l.carrying.Wait()
	})
	return l
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.carrying.Go(func() { l.carry(near) })
	}
}

// carry joins one connection with the database. What comes after a cut is swallowed, for as long as the worker holds it.
func (l *link) carry(near net.Conn) {
	defer func() { _ = near.Close() }() // the worker may have
	far := l.dial(near)
	if far != nil {
		var answers sync.WaitGroup
		answers.Go(func() {
			_, _ = io.Copy(near, far) // it ends with either side
			if !l.cutNow() {
				_ = near.Close() // as the database did
			}
		})
		_, _ = io.Copy(far, near)
		_ = far.Close()
		answers.Wait()
	}
	_, _ = io.Copy(io.Discard, near)
}

// dial returns the other end of a connection; nil if it leads nowhere.
func (l *link) dial(near net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, near)
	if l.isCut {
		return nil
	}
	far, err := net.Dial("tcp", l.target)
	if err != nil {
		return nil
	}
	l.all, l.ends[far] = append(l.all, far), true
	return far
}

func (l *link) cutNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// cut has packets vanish until mend.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for far := range l.ends {
		_ = far.Close() // it may be closed
		delete(l.ends, far)
	}
}

// mend lets new connections through. Those from before stay dead.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}

// TestWorkerCutOffFromTheDatabaseAloneKeepsItsSessions cuts a worker's link to the database for longer than three leases,
// while media flows. API processes reach the worker, and it them.
func TestWorkerCutOffFromTheDatabaseAloneKeepsItsSessions(t *testing.T) {
	t.Parallel()
	const cut = 20 * time.Second
	q := newQuarter(t, run.stack.get(t), nil)
	l := newLink(t, q.DatabaseURL)
	owner := q.startWorker(t, q.name("w"), 4, "BERTH_DATABASE_URL="+l.url, "BERTH_API_URLS="+q.APIURL)
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("s")})
	if err != nil {
		t.Fatal(err)
	}
	other := q.startWorker(t, q.name("other"), 4) // it would take the session if anybody gave up
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	before, socket := q.owner(t, placed.ID), q.connection(t, placed.ID)

	l.cut()
	began := time.Now()
	for time.Since(began) < cut {
		peer.flows(t)
		if after := q.owner(t, placed.ID); after != before {
			t.Fatalf("%.1f s after the cut: %v became %v", time.Since(began).Seconds(), before, after)
		}
	}
	row := q.worker(t, owner.id)
	if row.State != "ready" || row.CordonedReason != "database_cut" || time.Since(row.RenewedAt) > 6*time.Second {
		t.Errorf("while its link is cut the worker is %+v", row)
	}
	if got := q.place(t, `{}`); got.Owner.WorkerID != other.id {
		t.Errorf("placed on %s, which could not write that a peer connected", got.Owner.WorkerID)
	}

	l.mend()
	eventually(t, func() error {
		row := q.worker(t, owner.id)
		if present := query[bool](t, q.stack, "select berth.presence_held($1)", int(owner.instance)); row.CordonedReason != "" || !present {
			return fmt.Errorf("with its link mended the worker is present %v, %+v", present, row)
		}
		return nil
	})
	t.Logf("renewed for itself %.1f s after the link was mended", (time.Since(began) - cut).Seconds())
	peer.flows(t)
	if after := q.owner(t, placed.ID); after != before || q.connection(t, placed.ID) != socket || peer.conn.Stats().Moves != 0 {
		t.Errorf("before the cut %v by socket %s, after it %v by socket %s, %+v", before, socket, after, q.connection(t, placed.ID), peer.conn.Stats())
	}
	if text := owner.errors(); !strings.Contains(text, "lease renewed through an api replica") || strings.Contains(text, "in doubt") {
		t.Error("the worker's log does not say that it went the second way, or says that it was in doubt")
	}
}

// TestWorkerThatNobodyAnswersStopsItsMedia cuts the only path that a worker has left.
func TestWorkerThatNobodyAnswersStopsItsMedia(t *testing.T) {
	t.Parallel()
	q := newQuarter(t, run.stack.get(t), nil)
	l := newLink(t, q.DatabaseURL)
	second := newLink(t, q.APIURL)
	owner := q.startWorker(t, q.name("w"), 4,
		slices.Concat(shortLease, []string{"BERTH_DATABASE_URL=" + l.url, "BERTH_API_URLS=" + second.url})...)
	client := q.client(t)
	placed, err := client.CreateSession(t.Context(), sdk.CreateSession{ID: q.name("s")})
	if err != nil {
		t.Fatal(err)
	}
	peer := connect(t, client, placed, "echo")
	peer.flows(t)
	l.cut()
	second.cut()
	began := time.Now()
	eventually(t, func() error {
		if !strings.Contains(owner.errors(), "silence: stopping all sessions") {
			return errors.New("the worker runs on")
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("stopped %.1f s after the last packet, with a lease of %v", took.Seconds(), shortTerm)
	if limit := shortTerm + 3*time.Second; took < limit-time.Second || took > limit+3*time.Second {
		t.Errorf("want about %v", limit)
	}
	l.mend()
	second.mend()
	peer.flows(t) // its client was told to come back, and nobody had taken the session
	if row := q.owner(t, placed.ID); row.worker != owner.id {
		t.Errorf("afterwards the session is %v", row)
	}
}
