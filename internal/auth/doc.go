// Package auth makes and checks what callers present: API keys, session tokens, rejoin tokens, signed
// nudges and TURN credentials.
//
// # Model
//
// Postgres holds the truth: hashes of API keys, Ed25519 signing keys, rejoin secrets. This package
// reads them through small interfaces, and keeps what it read for a short time.
//
//	credential       proves                        form                          checked by   good for
//	API key          tenant or operator            berth_<role>_<id>_<secret>    API          until revoked (+ 5 s)
//	session token    a peer's place in a session   JWT, Ed25519, aud = worker    worker       10 minutes
//	rejoin token     a peer of a session           rj1_<payload>_<HMAC-SHA256>   API          until the session ends
//	nudge            an API process                JWT, Ed25519, aud = worker    worker       30 seconds
//	TURN credential  use of a relay                TURN REST, HMAC-SHA1          TURN server  BERTH_TURN_TTL
//
// A rejoin token of the form rj2_ also says which user the peer is and which topics it may use.
//
// Time comes from the caller, who has it from the database; a process's own clock measures only how old
// its cached copies are. Checks allow 5 s of difference.
//
// # Failures
//
// A wrong credential and a store that cannot be asked are different errors: [ErrUnavailable] is worth a
// retry (503), the others are not (401, 4401). No error holds any part of a credential. While the
// database is away, workers go on checking session tokens with the keys they have.
//
// # Not promised
//
// A session token is not revoked before it expires; the worker checks its generation against the
// placement. A rejoin token says nothing about whether the session lives; its row does.
package auth
