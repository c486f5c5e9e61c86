package config

import (
	"fmt"
	"strings"
)

// preface opens docs/configuration.md.
const preface = `<!-- Generated from internal/config by "make generate". Do not edit. -->
# Configuration

Berth reads environment variables that start with ` + "`BERTH_`" + `, and nothing else. One environment may serve all processes.

- ` + "`berth config check`" + ` validates it, ` + "`berth config print`" + ` shows the effective values with secrets hidden.
- A value that is empty, quoted, surrounded by white space, out of range or without its unit is an error, and so is a ` + "`BERTH_`" + `
  name that no Berth process knows. Every problem is reported at once, by name and without the value.
- Secrets can come from a file: ` + "`BERTH_X_FILE`" + ` names it instead of ` + "`BERTH_X`" + `. One newline at its end is dropped.
- Durations are numbers with a unit: ` + "`400ms`, `6s`, `1m30s`, `2h`" + `. Lists have commas between their items.
- Variables that Kubernetes adds for a Service whose name starts with "berth" are ignored.
`

// Markdown returns docs/configuration.md.
func Markdown() string {
	var page strings.Builder
	page.WriteString(preface)
	for _, e := range catalog() {
		writeEntry(&page, e)
	}
	return page.String()
}

// writeEntry writes the section of one variable.
func writeEntry(page *strings.Builder, e entry) {
	name := e.name
	if e.isSecret() {
		name += ", " + e.name + fileSuffix
	}
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n", name, meaning(e.name))
	fmt.Fprintf(page, "- value: %s%s\n", listOf(e), e.want())
	fmt.Fprintf(page, "- default: %s\n", standard(e))
	fmt.Fprintf(page, "- read by: %s\n", strings.Join(e.commands, ", "))
}

// listOf introduces the items of a list.
func listOf(e entry) string {
	if e.isList() && !e.isSecret() {
		return "a list; each item is "
	}
	return ""
}

// standard says what happens if the variable is not set.
func standard(e entry) string {
	switch {
	case e.tag.Get("fallback") != "":
		return e.tag.Get("fallback")
	case e.tag.Get("default") != "":
		return "`" + e.tag.Get("default") + "`"
	case e.tag.Get("required") == "true":
		return "none; required (tools need it only for commands that use the database)"
	default:
		return "not set"
	}
}
