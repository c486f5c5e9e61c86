package config

// API configures `berth api`: the HTTP API, the River client and the reaper.
type API struct {
	Log       Log
	Database  Database
	Backplane Backplane
	Pool      Pool
	HTTP      HTTP
	Edge      Edge
	Proxies   Proxies
	TURN      TURN
	Detection Detection
	Reaper    Reaper
	Placement Placement
	Streams   Streams
	Region    Region
	Dev       Dev
}

// Worker configures `berth worker`: signaling and media.
type Worker struct {
	Log       Log
	Database  Database
	Backplane Backplane
	Pool      Pool
	Identity  Identity
	Signaling Signaling
	Limits    Limits
	Proxies   Proxies
	Control   Control
	Media     Media
	Edge      Edge
	TURN      TURN
	Detection Detection
	Renewal   Renewal
	Presence  Presence
	Region    Region
	Dev       Dev
}

// Migrate configures `berth migrate`, which needs nothing but the databases.
type Migrate struct {
	Log       Log
	Database  Database
	Backplane Backplane
}

// Tool configures the commands for operators. Each command asks for what it needs
// (the database, or the API and a key), so nothing is required here.
type Tool struct {
	Database OptionalDatabase
	Client   Client
}

// Local configures `berth dev` and other commands that run a private Postgres. The processes that
// `berth dev` starts have their own configuration.
type Local struct {
	Log      LogLevel
	Postgres PrivatePostgres
	Reaper   Design
}

// Process is any of the configurations that [Load] can make.
type Process interface {
	API | Worker | Migrate | Tool | Local
}

// processes lists every kind of process with the command that uses it, in the order
// of the generated page.
func processes() []process {
	return []process{
		{command: "api", spec: &API{}},
		{command: "worker", spec: &Worker{}},
		{command: "migrate", spec: &Migrate{}},
		{command: "tools", spec: &Tool{}},
		{command: "dev", spec: &Local{}},
	}
}

// process is one kind of process: its command and a pointer to its empty struct.
type process struct {
	command string
	spec    any
}
