// Package spec is the description of Berth's HTTP API: openapi.yaml, the source of generated types and clients, as the
// API serves it.
package spec

import _ "embed"

//go:embed openapi.yaml
var document []byte

// OpenAPI returns a copy of openapi.yaml (OpenAPI 3.1).
func OpenAPI() []byte { return append([]byte(nil), document...) }
