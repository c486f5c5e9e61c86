// Package lab is what the harnesses have in common: a Postgres of their own, a prepared database that every measurement
// gets a copy of, children that do not outlive them, and the description of the machine that goes with each result.
//
// A [Server] lives as long as a run. Its templates are made once, by the migrations and the store, and nobody connects to
// one after that: Postgres copies only databases that nobody uses.
package lab
