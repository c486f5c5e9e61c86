// Package archtest holds the rules of this repository that no compiler or linter checks, as tests.
//
// A rule is a row of a table, with the reason beside it, so that a failure says what to do and a reviewer can argue with the
// reason:
//
//   - layers_test.go: which package may import which other package of this module. Imports point down only, and each
//     package has a row; a new package needs one too.
//   - confinement_test.go: which packages may import which library, so that each technology has one home.
//   - module_test.go: go.mod, tools/go.mod and the places that repeat the toolchain.
//   - source_test.go: package comments, package names, file sizes, words, and text that belongs to one machine.
//
// Only what ships is bound by the import rules: test files may import anything.
//
// The rules come from docs/architecture.md; where code and that page must differ, change the row, its reason and the page
// together.
package archtest
