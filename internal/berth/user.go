package berth

// UserConnections says how many connections of a user one worker holds.
type UserConnections struct {
	WorkerID    string
	Connections int
}
