package devpg

import (
	"maps"
	"slices"
	"strconv"
)

// settings returns what the server is told on its command line, where it beats
// postgresql.conf, sorted by name.
func (c Config) settings(port int, socketDir string) []string {
	chosen := map[string]string{
		"cluster_name":                     clusterName,
		"listen_addresses":                 c.Listen,
		"port":                             strconv.Itoa(port),
		"unix_socket_directories":          socketDir,
		"unix_socket_permissions":          "0700",
		"max_connections":                  strconv.Itoa(c.MaxConnections),
		"wal_level":                        "replica",
		"client_connection_check_interval": "500ms", // frees the locks of a client that was killed in mid-statement
		"timezone":                         "UTC",
		"lc_messages":                      "C", // launch reads the messages
		"logging_collector":                "off",
		"log_line_prefix":                  "%m [%p] %d ",
	}
	if !c.Durable {
		maps.Copy(chosen, map[string]string{
			"fsync":              "off",
			"full_page_writes":   "off",
			"synchronous_commit": "off",
			"max_wal_size":       "1GB", // no checkpoints in the middle of a test
			"checkpoint_timeout": "30min",
		})
	}
	if c.Dir == "" {
		// segments in the data directory go with it; those of a killed server in
		// /dev/shm would stay
		chosen["dynamic_shared_memory_type"] = "mmap"
	}
	maps.Copy(chosen, c.Settings)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		args = append(args, "-c", name+"="+chosen[name])
	}
	return args
}
