//go:build clockoffset

package config

// shiftsClock says whether the binary's clock is one that a test can set. Such a binary is built by the end-to-end tests,
// with a package time that adds an offset to the wall clock; the tag alone shifts nothing.
const shiftsClock = true
