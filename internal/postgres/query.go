package postgres

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed query/*.sql
var queryFiles embed.FS

// queries are the statements of query/*.sql by name. A file holds any number, each under a line "-- name: noun_verb".
type queries map[string]string

// loadQueries reads the embedded files. A name that stands twice is an error.
func loadQueries() (queries, error) {
	entries, err := queryFiles.ReadDir("query")
	if err != nil {
		return nil, fmt.Errorf("read queries: %w", err)
	}
	loaded := queries{}
	for _, entry := range entries {
		text, err := queryFiles.ReadFile("query/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", entry.Name(), err)
		}
		for _, part := range strings.Split(string(text), "-- name: ")[1:] {
			name, statement, _ := strings.Cut(part, "\n")
			name = strings.TrimSpace(name)
			if _, twice := loaded[name]; twice {
				return nil, fmt.Errorf("query %s stands twice", name)
			}
			loaded[name] = strings.TrimSpace(statement)
		}
	}
	return loaded, nil
}
