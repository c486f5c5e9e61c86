package signaling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthdev/berth/internal/berth"
)

// Protocol is the WebSocket subprotocol that the hub speaks.
const Protocol = "berth.v1"

// Config holds what is optional. The zero value of a field means its default.
type Config struct {
	AllowedOrigins []string // exact origins of pages that may connect; no page by default
	AllowLoopback  bool     // pages served from loopback may connect too (berth dev)

	UpgradeRate  float64 // upgrades per second of this process; default 2000
	UpgradeBurst int     // upgrades at once; default a quarter of UpgradeRate, at least 1

	UpgradeRatePerAddress float64        // upgrades per second of one address, twice as many at once; zero: no limit
	TrustedProxies        []netip.Prefix // whose X-Forwarded-For is believed; none by default
	MaxConnections        int            // upgraded at one time; zero: no limit
	FrameRate             float64        // frames per second of one client; default 50
	FrameBurst            int            // frames of one client at once; default 200
	Compression           bool           // of frames, for clients that offer it

	PingInterval   time.Duration // between application pings; default 10s
	PongTimeout    time.Duration // without any frame from the client; default 2.5 PingInterval
	JoinTimeout    time.Duration // to be admitted, and then to send the first frame; default 1.5 PingInterval
	ConnectTimeout time.Duration // for one write to the database; default 2s
	DoubtHold      time.Duration // a session counts as held after a join that may be repeated; default 30s
	SettleInterval time.Duration // between attempts to tell the database what it did not take; default 1s

	MaxSubscriptions int    // topics of one connection; default 256
	Inbox            string // topic of what is for this worker; required for calls, and for peers that have a user

	QueueBytes int           // per connection, of frames not yet taken by the kernel; default 512 KiB
	QueueAge   time.Duration // of the oldest such frame; default 5s
	CloseGrace time.Duration // from the decision to close until the connection is cut; default 5s

	// Awake tells since when the process runs without a pause. Nil: since ever.
	Awake func() time.Time

	// ICEServers makes the welcome's ice_servers for a peer. Nil: none.
	ICEServers func(grant Grant) []ICEServer
}

func (c Config) withDefaults() Config {
	c.UpgradeRate = cmp.Or(c.UpgradeRate, 2000)
	c.UpgradeBurst = cmp.Or(c.UpgradeBurst, max(1, int(c.UpgradeRate/4)))
	c.FrameRate = cmp.Or(c.FrameRate, 50)
	c.FrameBurst = cmp.Or(c.FrameBurst, 200)
	c.PingInterval = cmp.Or(c.PingInterval, 10*time.Second)
	c.PongTimeout = cmp.Or(c.PongTimeout, c.PingInterval*5/2)
	c.JoinTimeout = cmp.Or(c.JoinTimeout, c.PingInterval*3/2)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 2*time.Second)
	c.DoubtHold = cmp.Or(c.DoubtHold, berth.ConnectWindow)
	c.SettleInterval = cmp.Or(c.SettleInterval, time.Second)
	c.MaxSubscriptions = cmp.Or(c.MaxSubscriptions, 256)
	c.QueueBytes = cmp.Or(c.QueueBytes, 512<<10)
	c.QueueAge = cmp.Or(c.QueueAge, 5*time.Second)
	c.CloseGrace = cmp.Or(c.CloseGrace, 5*time.Second)
	if c.Awake == nil {
		c.Awake = func() time.Time { return time.Time{} }
	}
	if c.ICEServers == nil {
		c.ICEServers = func(Grant) []ICEServer { return nil }
	}
	return c
}

// Deps are the parts that a hub needs.
type Deps struct {
	Tokens    Tokens
	Directory Directory
	Media     Media
	Topics    Topics
	Logger    *slog.Logger
	Registry  prometheus.Registerer
}

func (d Deps) validate() error {
	if d.Tokens == nil || d.Directory == nil || d.Media == nil || d.Topics == nil || d.Logger == nil || d.Registry == nil {
		return errors.New("signaling: every dependency is required")
	}
	return nil
}

// Admission says whom a hub lets in.
type Admission int

// The admissions, from none to everybody.
const (
	AdmitNone  Admission = iota // not registered yet, or stopping
	AdmitHeld                   // in doubt: sessions that run here already
	AdmitOwned                  // draining: sessions that are placed here, as a valid token proves
	AdmitAll
)

// open: sessions that are placed here may come, also those without media here.
func (a Admission) open() bool { return a >= AdmitOwned }

// Hub holds the sessions that a worker serves and the sockets of their peers. Make one with New; it admits nobody
// before Admit.
type Hub struct {
	config  Config
	deps    Deps
	door    *door
	metrics *metrics
	settler *settler
	joins   gates
	ping    []byte // the frame
	inbox   inbox
	recent  recent
	tasks   sync.WaitGroup // connections and the settler
	crew    crew           // writes for connections, and handles what they send

	unrecovered complaint // of calls

	mu        sync.Mutex
	admission Admission
	stopped   bool
	sessions  map[berth.SessionKey]*session
	joining   map[berth.Held]int // joins that may have been written to the database
	ending    map[berth.Held]berth.EndedReason
	absent    map[berth.Held]absence
	open      map[*sender]context.CancelFunc // every upgraded connection, also before it joined; ends its calls
}

// New returns a hub that admits nobody yet. It fails when a dependency is missing or a metric is registered twice.
func New(config Config, deps Deps) (*Hub, error) {
	if err := deps.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("register signaling metrics: %w", err)
	}
	h := &Hub{
		config:   config,
		deps:     deps,
		door:     newDoor(config, m),
		ping:     encode(plainFrame{Type: typePing}),
		metrics:  m,
		sessions: map[berth.SessionKey]*session{},
		joining:  map[berth.Held]int{},
		ending:   map[berth.Held]berth.EndedReason{},
		absent:   map[berth.Held]absence{},
		open:     map[*sender]context.CancelFunc{},
	}
	h.settler = newSettler(h)
	h.inbox = inbox{hub: h, turn: make(chan struct{}, 1), users: map[addressee]map[*peer]*letterbox{}}
	return h, nil
}

// Run tells the database what ended here until ctx is done, repeating what it did not take. Everything else works
// without it.
func (h *Hub) Run(ctx context.Context) { h.settler.run(ctx) }

// Served is one session of the hub, as far as its worker decides on it.
type Served struct {
	berth.Held
	OnWorkerLoss berth.OnWorkerLoss
	Peers        int // connected now
}

// Serving lists the sessions that peers are or were connected to and that have not ended.
func (h *Hub) Serving() []Served {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]Served, 0, len(h.sessions))
	for _, s := range h.sessions {
		list = append(list, Served{Held: s.held, OnWorkerLoss: s.onWorkerLoss, Peers: len(s.peers)})
	}
	return list
}

// Settle tells the database once more what ended and who left, as a last word before Close. It gives up at the first
// word that the database does not take.
func (h *Hub) Settle(ctx context.Context) { h.settler.settle(ctx) }

// beside runs f as a task of the hub, unless that is about to wait for all of them.
func (h *Hub) beside(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.tasks.Go(func() {
			defer h.survive("task")
			f()
		})
	}
}

// Close admits nobody any more, closes every connection with 1012 and a wait within retry, ends all media and waits for
// every goroutine of the hub; joins that are under way are given up. A connection is cut when its grace is over or ctx
// is done. Close tells the database nothing.
func (h *Hub) Close(ctx context.Context, retry time.Duration) {
	h.mu.Lock()
	h.stopped = true
	h.admission = AdmitNone
	connections := maps.Clone(h.open)
	h.mu.Unlock()

	h.DropAll(Fate{Restart: true, Retry: retry})
	for c, giveUp := range connections {
		c.close(CloseRestart, retryReason(retry))
		giveUp()
	}
	stop := context.AfterFunc(ctx, func() {
		for c := range connections {
			c.wire.Cut()
		}
	})
	defer stop()
	h.tasks.Wait()
	h.crew.end() // only connections give it tasks
	h.inbox.end()
}
