package config

// meaning explains a variable to the person who sets it. A test proves that each has one.
func meaning(name string) string {
	for _, meanings := range []map[string]string{databaseMeanings(), detectionMeanings(), placementMeanings()} {
		if text, ok := meanings[name]; ok {
			return text
		}
	}
	return map[string]string{
		"BERTH_LOG_LEVEL":  "Least severe level that is logged.",
		"BERTH_LOG_FORMAT": "`json`, or `text` for people.",

		"BERTH_LISTEN":           "Listening address of the HTTP API.",
		"BERTH_PUBLIC_URL":       "URL under which clients reach the API; `rejoin_url` starts with it.",
		"BERTH_SHUTDOWN_TIMEOUT": "How long requests may take to finish after SIGTERM.",

		"BERTH_ALLOWED_ORIGINS": "Origins of web pages that may connect to `/rtc` and call rejoin. Compared exactly. " +
			"A request without Origin is not from a browser and passes.",

		"BERTH_TURN_URLS": "STUN and TURN servers that clients get as `ice_servers`.",
		"BERTH_TURN_SECRETS": "Secrets shared with the TURN servers for time-limited credentials (coturn: `static-auth-secret`). " +
			"The first signs; name the old one second during a change.",
		"BERTH_TURN_TTL": "Life of a TURN credential. It limits new allocations, not running ones.",

		"BERTH_TOPIC_STREAMS":    "Most streams of topics open at once in one process. One tenant may have a quarter of them.",
		"BERTH_STREAMS":          "Most event streams open at once in one process. One tenant may have a quarter of them.",
		"BERTH_STREAM_KEEPALIVE": "Silence after which an event stream gets a comment. Keep it under the idle timeout of every proxy between.",

		"BERTH_REGION": "API: region of sessions that ask for none and whose tenant has no default; empty: any. " +
			"Worker: region of its slots; empty: `default`.",

		"BERTH_WORKER_ID":     "Stable name of the worker, unique in the database.",
		"BERTH_WORKER_SLOTS":  "How many media sessions the worker carries at once.",
		"BERTH_WORKER_LABELS": "What a start can ask for with `selector`, such as `gpu=a10,zone=b`. At most 16, each name once.",
		"BERTH_SLOW_START": "How long a new worker takes to get its full share of starts, if others of its region bear the load meanwhile: its slots " +
			"become first choice one by one. Nobody is refused for it. `0s`: at once.",
		"BERTH_DRAIN_DEADLINE": "How long sessions may go on after SIGTERM before they are moved or ended.",

		"BERTH_SIGNALING_LISTEN": "Listening address for clients: `/rtc`, and health checks of balancers.",
		"BERTH_SIGNALING_URL":    "URL under which clients reach `/rtc` on that listener.",
		"BERTH_UPGRADE_RATE":     "Most WebSocket upgrades that one process accepts; above it clients get 503 and Retry-After.",
		"BERTH_UPGRADE_RATE_PER_ADDRESS": "Most WebSocket upgrades from one address, with twice as many at once; above it clients get 429 and Retry-After. " +
			"An address is one of IPv4, or a /64 of IPv6. Offices and mobile networks share one among many people. `0/s`: no limit, as for load " +
			"tests, which come from one address.",
		"BERTH_TRUSTED_PROXIES": "Proxies whose X-Forwarded-For is believed. The client is the right-most address in it that is none of these. Empty: " +
			"the header is ignored, and all clients behind a proxy count as one address. Workers limit upgrades by address, the API renewals with " +
			"secrets that it does not know.",
		"BERTH_MAX_CONNECTIONS": "Most connections of one process; above it clients get 503 and Retry-After. `0`: as many as the limit of open files " +
			"leaves room for. A start that finds the limit of open files below this, or below 10000, logs a warning.",
		"BERTH_FRAME_RATE": "Frames that one client may send, in the long run. Those above it are answered with `rate_limited`; a client that goes on is " +
			"closed with 1013.",
		"BERTH_FRAME_BURST": "Frames that one client may send at once, as many candidates of one offer are.",
		"BERTH_COMPRESSION": "Whether frames may be compressed, for clients that offer it (permessage-deflate without context takeover). It saves bytes of " +
			"frames over 512 bytes, and costs CPU for each.",
		"BERTH_PING_INTERVAL": "How often the server pings each client. Keep it under the idle timeout of every proxy between.",

		"BERTH_CONTROL_LISTEN": "Listening address for the API: liveness by instance, and nudges. Not for the public.",
		"BERTH_CONTROL_URL":    "URL under which API processes reach that listener.",

		"BERTH_MEDIA_LISTEN":   "Listening address for media: one UDP port, and TCP as fallback.",
		"BERTH_MEDIA_ANNOUNCE": "Address that clients send media to, if it is not the listening one: a public address, or that of a UDP balancer.",

		"BERTH_API_URL": "Base URL of the API, for tools.",
		"BERTH_API_KEY": "API key that tools send.",

		"BERTH_PG_BIN": "Directory of `initdb` and `postgres` for a private Postgres.",

		"BERTH_DEV": "Adds pages of this machine to the allowed origins, and lets an API stop without waiting for balancers. Set by `berth dev`; not for production.",
	}[name]
}

// placementMeanings explains deadlines of sessions, and how they move.
func placementMeanings() map[string]string {
	return map[string]string{
		"BERTH_CONNECT_WINDOW": "How long a new session waits for its first connection before its slot is given back.",
		"BERTH_HOLD_REJOIN":    "How long a rejoin is held until the old worker's fate is known.",
		"BERTH_REJOIN_RATE":    "Most rejoins per second that one process works on. More wait for their turn, as long as `BERTH_HOLD_REJOIN`; beyond that they get 503 and Retry-After.",

		"BERTH_REBALANCE": "Whether workers that have many more connections of calls than the mean shed some, every 30 seconds. The same in all API processes. People may order it in any case.",
	}
}

// databaseMeanings explains what leads to databases.
func databaseMeanings() map[string]string {
	return map[string]string{
		"BERTH_DATABASE_URL": "Postgres 15 or newer. May point at a pooler in transaction mode.",
		"BERTH_DATABASE_DIRECT_URL": "The same database without a pooler, for migrations and for the session locks by which a worker is " +
			"known to live, which a pooler loses.",
		"BERTH_BACKPLANE_URLS": "Databases that carry topics, by which processes talk to each other, instead of the first one. Each topic is in one " +
			"of them, by its name: all processes need the same list in the same order, or they lose each other's messages, which they notice and " +
			"say as `berth_backplane_list_mismatch`. To change it, stop all, then start all: a topic that moves begins anew. Direct, without a pooler. " +
			"`berth migrate up` prepares each. One that is away when a process starts takes along its topics only.",
		"BERTH_DATABASE_POOL_SIZE": "Most connections for requests of one process. An API keeps half of them open. One for a worker's presence, or ten for an API's jobs, come on top.",
	}
}

// detectionMeanings explains the numbers of failure detection.
func detectionMeanings() map[string]string {
	return map[string]string{
		"BERTH_RENEW_INTERVAL": "How often a worker renews its lease.",
		"BERTH_LEASE":          "How long a worker owns its sessions after a renewal. The same for all processes.",
		"BERTH_DETECTOR": "By which sign a worker counts as missing at first: `presence`, its lock is gone; `lease`, its lease is over; `sweep`, " +
			"it does not answer. See [failure detection](failure-detection.md).",
		"BERTH_SENTINEL_LOOK": "How often missing workers are looked for between ticks. `0s`: never.",
		"BERTH_WALK_SESSIONS": "Lets each look read every live session as well, to compare costs. Not for production.",
		"BERTH_CONFIRM_DELAY": "Time between the first sign that a worker is gone and the second look, by other evidence.",
		"BERTH_REAPER_TICK":   "How often missing workers and overdue deadlines are looked for.",
		"BERTH_PAUSE_LIMIT":   "How long a worker may be paused (its lease late, its connection up) before it counts as lost.",
		"BERTH_HOLD_LIMIT":    "How long a worker keeps running sessions while the database is away.",
		"BERTH_API_URLS": "Base URLs of API replicas, or of a balancer before them, through which a worker renews its lease when it does not reach the " +
			"database itself. With them, a worker that nobody answers, neither the database nor any of these, stops its sessions 3 s after its lease: " +
			"name as many as there are, by addresses that do not share the fate of the database's. Empty: no second path.",
		"BERTH_KEEPALIVE_IDLE":     "Silence on the presence connection after which Postgres sends the first keepalive.",
		"BERTH_KEEPALIVE_INTERVAL": "Time between keepalives on the presence connection.",
		"BERTH_KEEPALIVE_COUNT":    "Unanswered keepalives after which Postgres drops the presence connection.",
		"BERTH_TCP_USER_TIMEOUT":   "Time without acknowledgment after which Postgres drops the presence connection.",
		"BERTH_REJOIN_WINDOW":      "How long a session whose worker was lost waits for its client.",
	}
}
