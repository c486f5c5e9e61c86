//go:build !clockoffset

package config

// shiftsClock says whether the binary's clock is one that a test can set.
const shiftsClock = false
