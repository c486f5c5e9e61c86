// Package config turns the environment into one validated struct per kind of process.
//
// # Model
//
// The environment is the only source: variables that start with BERTH_, and for
// secrets a file named by BERTH_X_FILE. A process loads its struct once, before it
// starts anything, and passes values on; nothing else in a process reads a
// BERTH_ variable. Each variable here is one that some process acts on: what
// a later feature needs arrives with it.
//
// [Load] works in four steps and reports every problem it finds, not only the first:
//
//  1. Names. A BERTH_ name that no Berth process knows is an error with the nearest
//     known name, because a misspelled variable would otherwise be a silent default.
//     A name that another kind of process knows is fine: one environment may serve
//     them all, and its value is still checked for form and range. The variables that
//     Kubernetes adds for a Service called "berth" are recognized and left alone, and
//     so is BERTH_TEST_, which belongs to tests; but BERTH_TEST_CLOCK_OFFSET is unknown
//     to a binary without the build tag clockoffset.
//  2. Text. Empty values, white space or quotes around a value, signs, leading
//     zeros and durations without a unit are errors. envconfig accepts some of these
//     (010 is 8, 0x10 is 16, an empty value satisfies "required").
//  3. Conversion by envconfig, one variable at a time, see convert.
//  4. [API.Validate] and its siblings: ranges, formats and rules between variables.
//     They work on a struct made by hand too.
//
// Every problem reads "BERTH_X: reason; remedy". A value is never part of it, since
// any variable may hold a secret that was pasted into the wrong place.
//
// The struct tags are the reference: env (full name), default, and what the value
// must satisfy (kind, oneof, min, max, step, required). docs/configuration.md is
// generated from them and from meaning.go.
package config

//go:generate go test . -run TestConfigurationPageIsFresh -update
