// Package telemetry makes the logger and the metrics registry of a process.
//
// # Model
//
// A logger is made once in cmd and passed down; nothing uses slog's default. Messages are constant,
// lower case and name an event; keys are snake_case. Two guards make a careless call harmless:
// attributes whose key names a secret ("token", "authorization", "sdp", ...) are printed as
// [redacted], and so are whole HTTP headers and requests, whatever their key. The guards do not look
// into texts: an error that quotes a token is a bug where it is made.
//
// A request id travels in the context. Every line logged with that context carries it.
//
// Metrics are structs made from a Registerer, one per package; labels come from small closed sets,
// so no tenant, session, worker address or raw path is ever a label.
package telemetry
