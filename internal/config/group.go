package config

import (
	"log/slog"
	"time"
)

// Log says what is logged and how. Logs go to stderr.
type Log struct {
	Level  slog.Level `env:"BERTH_LOG_LEVEL" default:"info" oneof:"debug info warn error"`
	Format string     `env:"BERTH_LOG_FORMAT" default:"json" oneof:"json text"`
}

// LogLevel is [Log] for a command that always logs as text for people.
type LogLevel struct {
	Level slog.Level `env:"BERTH_LOG_LEVEL" default:"info" oneof:"debug info warn error"`
}

// Database names the Postgres database. URL may point at a pooler, DirectURL must not:
// it carries session advisory locks. An empty DirectURL becomes URL.
type Database struct {
	URL       Secret `env:"BERTH_DATABASE_URL" kind:"postgres" required:"true"`
	DirectURL Secret `env:"BERTH_DATABASE_DIRECT_URL" kind:"postgres" fallback:"BERTH_DATABASE_URL"`
}

// Pool bounds the connections to the database.
type Pool struct {
	Size int `env:"BERTH_DATABASE_POOL_SIZE" default:"10" min:"2" max:"1000"`
}

// OptionalDatabase is [Database] for commands of which only some need one.
type OptionalDatabase struct {
	URL       Secret `env:"BERTH_DATABASE_URL" kind:"postgres"`
	DirectURL Secret `env:"BERTH_DATABASE_DIRECT_URL" kind:"postgres" fallback:"BERTH_DATABASE_URL"`
}

// Backplane names the databases that carry topics, in the same order for all processes. None: the database itself does.
type Backplane struct {
	URLs Secrets `env:"BERTH_BACKPLANE_URLS" kind:"postgres_list" fallback:"the database itself"`
}

// HTTP is the public listener of the API. An empty PublicURL is to be derived from the bound
// address; [API.Validate] makes sure that this is possible.
type HTTP struct {
	Listen          string        `env:"BERTH_LISTEN" default:"127.0.0.1:8080" kind:"address"`
	PublicURL       string        `env:"BERTH_PUBLIC_URL" kind:"http_url" fallback:"http:// and the listening address"`
	ShutdownTimeout time.Duration `env:"BERTH_SHUTDOWN_TIMEOUT" default:"20s" min:"1s" max:"10m"`
}

// Edge is what a process believes about browsers in front of it.
type Edge struct {
	AllowedOrigins []string `env:"BERTH_ALLOWED_ORIGINS" kind:"origin"`
}

// TURN lists the relays that clients get as ice_servers, and the secrets shared with
// them. The first secret signs; a second one is known to the relays during a change.
type TURN struct {
	URLs    []string      `env:"BERTH_TURN_URLS" kind:"turn_url"`
	Secrets Secrets       `env:"BERTH_TURN_SECRETS" kind:"turn_secrets"`
	TTL     time.Duration `env:"BERTH_TURN_TTL" default:"10m" min:"1m" max:"24h" step:"1s"`
}

// Detection holds the numbers of failure detection that workers and API must agree on.
type Detection struct {
	Lease        time.Duration `env:"BERTH_LEASE" default:"6s" min:"500ms" max:"5m"`
	RejoinWindow time.Duration `env:"BERTH_REJOIN_WINDOW" default:"60s" min:"1s" max:"1h"`
}

// Renewal is how a worker keeps its lease, and what it does without one. APIURLs lead to the API replicas that renew for
// it when the database is out of reach; without any there is no second path.
type Renewal struct {
	Interval  time.Duration `env:"BERTH_RENEW_INTERVAL" default:"2s" min:"100ms" max:"1m"`
	HoldLimit time.Duration `env:"BERTH_HOLD_LIMIT" default:"120s" min:"1s" max:"1h"`
	APIURLs   []string      `env:"BERTH_API_URLS" kind:"http_url"`
}

// Reaper holds the numbers by which the API judges workers.
type Reaper struct {
	Detector     string        `env:"BERTH_DETECTOR" default:"presence" oneof:"presence lease sweep"`
	Sentinel     time.Duration `env:"BERTH_SENTINEL_LOOK" default:"100ms" min:"0s" max:"1s"`
	WalkSessions bool          `env:"BERTH_WALK_SESSIONS" default:"false"`
	Tick         time.Duration `env:"BERTH_REAPER_TICK" default:"1s" min:"100ms" max:"1m"`
	ConfirmDelay time.Duration `env:"BERTH_CONFIRM_DELAY" default:"400ms" min:"50ms" max:"30s"`
	PauseLimit   time.Duration `env:"BERTH_PAUSE_LIMIT" default:"45s" min:"1s" max:"30m"`
}

// Design is the part of [Reaper] that `berth dev` hands to its API.
type Design struct {
	Detector string `env:"BERTH_DETECTOR" default:"presence" oneof:"presence lease sweep"`
}

// Placement holds the deadlines that the API sets on new and moving sessions.
type Placement struct {
	ConnectWindow time.Duration `env:"BERTH_CONNECT_WINDOW" default:"30s" min:"1s" max:"10m"`
	HoldRejoin    time.Duration `env:"BERTH_HOLD_REJOIN" default:"5s" min:"100ms" max:"30s"`
	RejoinRate    Rate          `env:"BERTH_REJOIN_RATE" default:"500/s" min:"1/s" max:"1000000/s"`
	Rebalance     bool          `env:"BERTH_REBALANCE" default:"true"`
}

// Streams bounds the event streams of an API process.
type Streams struct {
	Most      int           `env:"BERTH_STREAMS" default:"256" min:"1" max:"100000"`
	Topics    int           `env:"BERTH_TOPIC_STREAMS" default:"4096" min:"1" max:"100000"`
	KeepAlive time.Duration `env:"BERTH_STREAM_KEEPALIVE" default:"15s" min:"1s" max:"5m"`
}

// Region is the region of the process; empty is none for an API and "default" for a worker.
type Region struct {
	Name string `env:"BERTH_REGION" kind:"region"`
}

// Identity is how a worker is known and how much it carries. An empty WorkerID becomes
// the host name. Labels are written "name=value"; see [LabelMap].
type Identity struct {
	WorkerID      string        `env:"BERTH_WORKER_ID" kind:"id" required:"true" fallback:"the host name"`
	Slots         int           `env:"BERTH_WORKER_SLOTS" default:"8" min:"1" max:"10000"`
	Labels        []string      `env:"BERTH_WORKER_LABELS" kind:"label"`
	SlowStart     time.Duration `env:"BERTH_SLOW_START" default:"30s" min:"0s" max:"10m"`
	DrainDeadline time.Duration `env:"BERTH_DRAIN_DEADLINE" default:"60s" min:"1s" max:"24h"`
}

// Signaling is the worker's listener for clients. URL leads to /rtc on it, whatever a proxy makes
// of the path. An empty URL is to be derived from the bound address; [Worker.Validate] makes sure
// that this is possible.
type Signaling struct {
	Listen       string        `env:"BERTH_SIGNALING_LISTEN" default:":7880" kind:"address"`
	URL          string        `env:"BERTH_SIGNALING_URL" kind:"ws_url" fallback:"ws://, the listening address and /rtc"`
	UpgradeRate  Rate          `env:"BERTH_UPGRADE_RATE" default:"2000/s" min:"1/s" max:"1000000/s"`
	PingInterval time.Duration `env:"BERTH_PING_INTERVAL" default:"10s" min:"1s" max:"5m"`
	Compression  string        `env:"BERTH_COMPRESSION" default:"off" oneof:"off on"`
}

// Proxies are those in front of the process: addresses and CIDR prefixes; see [Prefixes].
type Proxies struct {
	Trusted []string `env:"BERTH_TRUSTED_PROXIES" kind:"network"`
}

// Limits bound what one client, or many, can take of a worker's signaling.
type Limits struct {
	UpgradeRatePerAddress Rate `env:"BERTH_UPGRADE_RATE_PER_ADDRESS" default:"100/s" min:"0/s" max:"1000000/s"`
	MaxConnections        int  `env:"BERTH_MAX_CONNECTIONS" default:"0" min:"0" max:"10000000"`
	FrameRate             Rate `env:"BERTH_FRAME_RATE" default:"50/s" min:"1/s" max:"100000/s"`
	FrameBurst            int  `env:"BERTH_FRAME_BURST" default:"200" min:"10" max:"1000000"`
}

// Control is the worker's internal listener, which the API asks whether the worker lives.
// An empty URL is derived as for [Signaling].
type Control struct {
	Listen string `env:"BERTH_CONTROL_LISTEN" default:":7881" kind:"address"`
	URL    string `env:"BERTH_CONTROL_URL" kind:"http_url" fallback:"http:// and the listening address"`
}

// Media is the worker's one UDP port. The zero Announce means: the listening address, or
// each address of the host if that names none.
type Media struct {
	Listen   string   `env:"BERTH_MEDIA_LISTEN" default:":7882" kind:"address"`
	Announce Announce `env:"BERTH_MEDIA_ANNOUNCE" fallback:"the host's own addresses"`
}

// Presence holds the server-side keepalive settings of the worker's presence connection.
// Postgres counts the first two in whole seconds.
type Presence struct {
	KeepaliveIdle     time.Duration `env:"BERTH_KEEPALIVE_IDLE" default:"3s" min:"1s" max:"10m" step:"1s"`
	KeepaliveInterval time.Duration `env:"BERTH_KEEPALIVE_INTERVAL" default:"2s" min:"1s" max:"10m" step:"1s"`
	KeepaliveCount    int           `env:"BERTH_KEEPALIVE_COUNT" default:"3" min:"1" max:"20"`
	UserTimeout       time.Duration `env:"BERTH_TCP_USER_TIMEOUT" default:"6s" min:"1s" max:"10m" step:"1ms"`
}

// Client is how tools reach the API.
type Client struct {
	APIURL string `env:"BERTH_API_URL" kind:"http_url"`
	APIKey Secret `env:"BERTH_API_KEY" kind:"secret"`
}

// Dev is set by `berth dev` for its processes: it adds loopback to the allowed origins, and an API
// stops without waiting for balancers.
type Dev struct {
	Enabled bool `env:"BERTH_DEV" default:"false"`
}

// PrivatePostgres says where the server binaries of a private Postgres are. An empty BinDir means
// the newest installation found.
type PrivatePostgres struct {
	BinDir string `env:"BERTH_PG_BIN" kind:"directory" fallback:"the newest installation found"`
}
